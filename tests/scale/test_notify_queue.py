"""
A full NOTIFY queue: somebody listens, opens a transaction and never comes back.

PostgreSQL keeps every notification until its slowest listener has read it. When there
is no room left, a transaction that has notified fails at its commit: cluster-wide.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import psycopg
import pytest
from django.db import connections, transaction

from tests.app.tasks import noop
from tests.faults.server import Server
from tests.harness.waiting import wait_for
from tests.scale.fleet import REPOSITORY, worker

pytestmark = pytest.mark.slow

ALIAS = "full"

# The least that PostgreSQL allows: half a megabyte instead of eight gigabytes.
QUEUE_PAGES = 64
SMALLEST = f"ALTER SYSTEM SET max_notify_queue_pages = {QUEUE_PAGES}"
FILL = "SELECT pg_notify('somebody', repeat('x', 7900))"
ENDED = "SELECT count(*) FROM pgqueue_archived_job"


@pytest.fixture
def server(monkeypatch):
    """A server of its own with the smallest queue of notifications, and our tables."""
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with Server() as server:
        with server.connect() as connection:
            if connection.info.server_version < 170_000:
                pytest.skip("PostgreSQL before 17 cannot make this queue small")
            connection.execute(SMALLEST)
        server.end(crash=False)
        server.start()
        monkeypatch.setenv("DATABASE_URL", server.url)
        subprocess.run(
            [sys.executable, "-m", "django", "migrate", "-v0"],
            cwd=REPOSITORY,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
            check=True,
            timeout=60,
        )
        yield server


@pytest.fixture
def database(server, settings, django_db_blocker):
    """Django's alias of that server, where jobs are enqueued now."""
    default = connections["default"].settings_dict
    connections.databases[ALIAS] = {**default, **server.database}
    settings.PGQUEUE = {"DATABASE": ALIAS}
    settings.DATABASE_ROUTERS = []
    with django_db_blocker.unblock():
        yield ALIAS
        connections[ALIAS].close()
    del connections[ALIAS]
    del connections.databases[ALIAS]


def test_enqueues_and_workers_go_on_while_the_queue_of_notifications_is_full(
    server, database, caplog
):
    """The transaction commits, the log says why it wakes nobody, the poll finds it."""
    caplog.set_level(logging.WARNING, "django_pgqueue.wake")
    with server.connect() as sleeper, server.connect() as other:
        sleeper.execute("LISTEN nothing")
        sleeper.execute("BEGIN")
        sleeper.execute("SELECT 1")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="NOTIFY queue"):
            fill(other)

        with transaction.atomic(using=database):
            noop.delay()
        assert ["queue=default"] == [
            record.getMessage().split()[2] for record in caplog.records
        ]
        assert "too many notifications" in caplog.text
        # In SQL, which notifies inside of the transaction, it is a clear refusal.
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="NOTIFY queue"):
            other.execute("SELECT pgqueue_enqueue('tests.app.tasks.noop')")
        # A plain INSERT is the enqueue that never notifies.
        other.execute("INSERT INTO pgqueue_job (task) VALUES ('tests.app.tasks.noop')")

        poll = {"POLL_INTERVAL_SECONDS": 0.2}
        with worker("--processes=1", "--threads=1", pgqueue=poll, name="pgqueue"):
            wait_for(lambda: (2,) == other.execute(ENDED).fetchone(), 20)
    assert 1 == len(caplog.records)


def fill(connection):
    """Notify until there is no room; a notification has nearly a page."""
    for _ in range(2 * QUEUE_PAGES):
        connection.execute(FILL)
