"""Migrations beside somebody who enqueues: nobody waits for long, however many rows."""

from __future__ import annotations

import os
import threading
import time
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, connections

import django_pgqueue.migrations as migrations
from django_pgqueue.postgres.connect import connection_params
from tests.harness.waiting import patience
from tests.places.place import as_queue

ROWS = int(os.environ.get("PGQUEUE_SCALE_ROWS", "100000"))
PAUSE_SECONDS_MAX = 0.1

# The schema of those who used lanes first; all later migrations are tried.
FROM = "0004_lanes"
STEPS = sorted(
    path.stem for path in Path(migrations.__path__[0]).glob("0*.py") if path.stem > FROM
)

# It has many statements in one transaction, and Django thinks between them, for long on
# a busy machine. Sent at once, as the how-to tells, they hold nobody up.
AT_ONCE = {"0007_lane_policies"}

# A third waits, a third has lanes, a third is for later.
FILL = """
INSERT INTO pgqueue_job (task, queue, args, lane, run_after)
SELECT 'tests.filler', 'q' || n %% 7, jsonb_build_array(n),
       CASE WHEN n %% 3 = 1 THEN 'lane-' || n %% 1000 END,
       CASE WHEN n %% 3 = 2 THEN now() + interval '1 d' END
  FROM generate_series(1, %(rows)s::int) n
"""
ENQUEUE = "INSERT INTO pgqueue_job (task, args) VALUES ('tests.written', '[1]')"

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "queue"])


class Writer(threading.Thread):
    """
    Enqueues one job after the other, and notes how long the longest took.

    One that waits for a lock for longer than is allowed ends it.
    """

    def __init__(self, database):
        super().__init__()
        params = {**connection_params("default"), "dbname": database}
        self._connection = psycopg.connect(**params, autocommit=True)
        most = int(PAUSE_SECONDS_MAX * patience() * 1000)
        self._connection.execute(f"SET lock_timeout = '{most}ms'")
        self._is_over = threading.Event()
        self.stored = 0
        self.longest = 0.0
        self.error = None

    def run(self):
        with self._connection:
            while not self._is_over.is_set():
                began = time.monotonic()
                try:
                    self._connection.execute(ENQUEUE)
                except psycopg.errors.LockNotAvailable as error:
                    self.error = error
                    return
                self.stored += 1
                self.longest = max(self.longest, time.monotonic() - began)

    def end(self):
        self._is_over.set()
        self.join()


@pytest.fixture
def filled(empty_database):
    """A database at the old schema, as the alias "queue", with rows."""
    with as_queue({**connection.settings_dict, "NAME": empty_database}) as alias:
        call_command("migrate", "pgqueue", FROM, database=alias, verbosity=0)
        with connections[alias].cursor() as cursor:
            cursor.execute(FILL, {"rows": ROWS})
            cursor.execute("ANALYZE pgqueue_job")
        yield alias


def apply_at_once(alias, step):
    """Do what the how-to tells: send the statements by psql, and note that it is so."""
    statements = StringIO()
    call_command("sqlmigrate", "pgqueue", step, database=alias, stdout=statements)
    connections[alias].connection.execute(statements.getvalue())
    call_command("migrate", "pgqueue", step, database=alias, fake=True, verbosity=0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_enqueue_waits_for_a_migration(filled, empty_database, record_property):
    """Neither for a lock, nor for the build of an index; each migration by itself."""
    for step in STEPS:
        writer = Writer(empty_database)
        writer.start()
        try:
            if step in AT_ONCE:
                apply_at_once(filled, step)
            else:
                call_command("migrate", "pgqueue", step, database=filled, verbosity=0)
        finally:
            writer.end()
        record_property(step, f"{writer.longest * 1000:.0f} ms")
        print(f"{step}: {writer.stored} stored, longest {writer.longest:.3f} s")  # noqa: T201
        assert writer.error is None, f"{step} holds an enqueue up: {writer.error}"
        assert 0 < writer.stored
