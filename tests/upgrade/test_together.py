"""An upgrade in the order that the how-to promises: the old version beside the new."""

from __future__ import annotations

import threading

import psycopg
import pytest
from django.db import connection

from django_pgqueue.postgres.connect import connection_params
from tests.harness.ledger import Ledger
from tests.harness.worker_process import wait_until_final
from tests.upgrade.versions import ROOT, Version, last_release, unpack

JOBS = 30


@pytest.fixture
def database(empty_database):
    """An entry of DATABASES, without any table."""
    ours = connection.settings_dict
    names = ("ENGINE", "HOST", "PORT", "USER", "PASSWORD", "OPTIONS")
    return {**{name: ours[name] for name in names}, "NAME": empty_database}


@pytest.fixture
def versions(database, tmp_path):
    """The last release, and this one."""
    unpack(last_release(), tmp_path / "old")
    told = (database, tmp_path / "ledger")
    with (
        Version(tmp_path / "old", tmp_path / "of_old", *told) as old,
        Version(ROOT, tmp_path / "of_new", *told) as new,
    ):
        yield old, new


@pytest.mark.slow
def test_old_and_new_run_beside_each_other(versions, database, tmp_path):
    """
    On the old schema, while it is migrated, and on the new one.

    Every job ends once and was begun once, whoever stored it and whoever ran it. A new
    worker refuses the old schema; a new web server enqueues on it.
    """
    old, new = versions
    old.migrate()
    first = old.start_worker()
    old_web, new_web = old.start_web(), new.start_web()
    ids = old_web.enqueue(JOBS) + new_web.enqueue(JOBS)
    if new.migrations() != old.migrations():
        refused = new.manage("pgqueue_worker", status=1)
        assert "lacks the migrations" in refused

    migrated = threading.Event()

    def enqueue_meanwhile():
        while not migrated.is_set():
            ids.extend(old_web.enqueue(1))

    writer = threading.Thread(target=enqueue_meanwhile)
    writer.start()
    try:
        new.migrate()
    finally:
        migrated.set()
        writer.join()

    second = new.start_worker()
    for web in (old_web, new_web) * 3:
        ids += web.enqueue(JOBS)
    params = {**connection_params("default"), "dbname": database["NAME"]}
    with psycopg.connect(**params, autocommit=True) as looking:
        final = wait_until_final(ids, cursor=looking.cursor())
    status = first.stop()

    assert {"succeeded"} == {place.state for place in final.values()}
    assert {0} == {place.crashes for place in final.values()}
    ledger = Ledger(tmp_path / "ledger")
    starts = ledger.starts()
    assert {1} == {starts[job] for job in ids}
    assert 2 <= len({entry.pid for entry in ledger.entries("start")})
    assert 0 == status
    assert [] == [*first.lines("ERROR"), *first.lines("Traceback")]
    assert [] == [*second.lines("ERROR"), *second.lines("Traceback")]
