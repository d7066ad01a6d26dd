"""The database crashes under its workers and comes back, on a server of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from collections import Counter
from pathlib import Path

import environ
import psycopg
import pytest

from django_pgqueue.testing.embedded import EmbeddedServer
from django_pgqueue.worker.claim.claimer import UNFLUSHED_JOBS_MAX
from tests.harness.waiting import patience, wait_for
from tests.harness.worker_process import REPOSITORY, places, wait_until_final

INSERT = """
INSERT INTO pgqueue_job (task) SELECT 'tests.app.crash_tasks.record'
  FROM generate_series(1, %s) RETURNING id
"""

OUTAGE_SECONDS = 2.0

pytestmark = pytest.mark.slow


@pytest.fixture
def server(monkeypatch):
    """An embedded server of this test alone; short path, open to the server's user."""
    folder = Path(tempfile.mkdtemp(prefix="pgq")).resolve()
    folder.chmod(0o755)
    monkeypatch.delenv("DATABASE_URL")
    server = EmbeddedServer(folder)
    try:
        with server:
            yield server
    finally:

        def is_removed():
            # The server's guard may still be on its way out.
            shutil.rmtree(folder, ignore_errors=True)
            return not folder.exists()

        wait_for(is_removed, what=f"{folder} is removed")


@pytest.fixture
def databases(server):
    """Changes to DATABASES that lead a worker there; its tables are made."""
    changes = dict.fromkeys(("default", "queue"), environ.Env.db_url_config(server.url))
    subprocess.run(
        [sys.executable, "-m", "django", "migrate", "--run-syncdb", "-v0"],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DATABASE_URL": server.url,
            "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
            "PGQUEUE_TEST_WORKER": json.dumps({"databases": changes, "pgqueue": {}}),
        },
        check=True,
        timeout=60 * patience(),
    )
    return changes


def crash(server):
    """Stop it as `pg_ctl stop -m immediate` does: no checkpoint, no good-bye."""
    data = server.home / "data"
    postmaster = int((data / "postmaster.pid").read_text().splitlines()[0])
    os.kill(postmaster, signal.SIGQUIT)
    wait_for(lambda: not is_up(server), what="the server is down")


def is_up(server):
    try:
        psycopg.connect(server.url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def test_nothing_is_lost_when_the_database_crashes_under_its_workers(
    start_worker, the_ledger, server, databases
):
    """
    Three crashes in 1 200 jobs: workers live on, come back by themselves, write a few
    log lines in between, and every job ends once.
    """
    with psycopg.connect(server.url, autocommit=True) as connection:
        ids = [row[0] for row in connection.execute(INSERT, [1_200]).fetchall()]
    worker = start_worker(
        processes=2,
        databases=databases,
        environment={"DATABASE_URL": server.url},
        pgqueue={"LEASE_SECONDS": 5, "POLL_INTERVAL_SECONDS": 1},
    )
    children = worker.children()
    back_at: list[float] = []

    for share in (100, 300, 500):
        wait_for(lambda at=share: len(the_ledger.starts()) >= at, what=f"{share} ran")
        lines_before = len(worker.lines())
        crash(server)
        began = time.monotonic()
        # The outage itself: nothing happens in it that could be waited for.
        wait_for(lambda at=began: time.monotonic() - at > OUTAGE_SECONDS)
        with EmbeddedServer(server.home.parent):
            back_at.append(time.monotonic())
            seconds = back_at[-1] - began
            lines = len(worker.lines()) - lines_before
            assert lines < 10 * seconds * len(children)
            started = len(the_ledger.starts())
            wait_for(
                lambda at=started: len(the_ledger.starts()) > at,
                timeout=15,
                what="jobs run again",
            )
    with psycopg.connect(server.url, autocommit=True) as connection:
        final = wait_until_final(ids, 40, connection.cursor())
        assert len(ids) == len(places(connection.cursor()))

    assert children == worker.children()
    assert {"succeeded"} == {place.state for place in final.values()}
    # A repeat has a lost lease to explain it, or is one of the few whose claim the
    # server's disk did not have when it crashed.
    explained = {job for job, place in final.items() if place.crashes}
    forgotten = set(the_ledger.repeated()) - explained
    first_at = {e.job: e.at for e in reversed(the_ledger.entries("start"))}
    by_crash = Counter(bisect(back_at, first_at[job]) for job in forgotten)
    assert by_crash[len(back_at)] == 0
    assert max(by_crash.values(), default=0) <= len(children) * UNFLUSHED_JOBS_MAX
    assert 0 == worker.stop()
