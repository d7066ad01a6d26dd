"""pg_cron as a source: what the page about it says is run on a server that has it."""

from __future__ import annotations

import os
import subprocess
import sys

import psycopg
import pytest

from tests.faults.server import Server
from tests.harness.system import require_system
from tests.harness.waiting import wait_for
from tests.test_docs import DOCS, blocks, read, section

PAGE = DOCS / "howto" / "use-pg-cron.md"

LIBRARIES = [
    f"/usr/lib/postgresql/{major}/lib/pg_cron.so" for major in (15, 16, 17, 18, 14)
]

# pg_cron counts in minutes. What is scheduled so runs when the server starts.
AT_START = "@reboot"


@pytest.fixture
def server(monkeypatch):
    """A server with the settings that the page tells, and the database it names."""
    library = require_system(*LIBRARIES, reason="its schedules enqueue jobs")
    monkeypatch.setenv("PGQUEUE_PG_BIN", str(library.parents[1] / "bin"))
    monkeypatch.delenv("DATABASE_URL", raising=False)
    server = Server()
    try:
        server.end(crash=False)
        (told,) = blocks(PAGE, "ini")
        with (server.home / "data" / "postgresql.conf").open("a") as settings:
            settings.write(told)
        server.start()
        with connect(server, "postgres") as connection:
            connection.execute("CREATE DATABASE shop")
        yield server
    finally:
        server.remove()


def connect(server, database):
    return psycopg.connect(server.url, dbname=database, autocommit=True)


def ended_runs(server):
    """Return who ran what, and how that ended, in the order of their ends."""
    with connect(server, "postgres") as connection:
        return connection.execute(
            "SELECT jobname, r.username, r.status FROM cron.job_run_details r"
            "  JOIN cron.job USING (jobid) WHERE r.end_time IS NOT NULL"
            " ORDER BY r.end_time"
        ).fetchall()


@pytest.mark.slow
def test_a_schedule_of_pg_cron_enqueues_a_job(server):
    """
    By the role that the page makes; and one of the same key does not pile up.

    Entries that cannot be are accepted, a sixth field among them, and seconds refused.
    """
    subprocess.run(
        [sys.executable, "-m", "django", "migrate", "-v0"],
        env=os.environ
        | {
            "DATABASE_URL": server.url.replace("/pgqueue?", "/shop?"),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
        },
        check=True,
        timeout=120,
    )
    extension, nightly, role, *others = blocks(PAGE, "sql", "postgresql")

    with connect(server, "shop") as shop:
        with pytest.raises(
            psycopg.errors.RaiseException, match="only create extension in database pos"
        ):
            shop.execute(extension)
        shop.execute(role)
    with connect(server, "postgres") as cron:
        for statement in (extension, nightly, *others):
            cron.execute(statement)
        text = section(read(PAGE), "## What it lacks")
        for accepted in ("0 0 3 * * *", "0 0 30 2 *", "5-1 * * * *", "*/90 * * * *"):
            assert f"`{accepted}`" in text
            cron.execute("SELECT cron.schedule('odd', %s, 'SELECT 1')", [accepted])
        with pytest.raises(psycopg.Error, match="invalid schedule: 15 seconds"):
            cron.execute("SELECT cron.schedule('odd', '15 seconds', 'SELECT 1')")
        cron.execute("SELECT cron.unschedule('odd')")
        for name in ("first", "second"):
            cron.execute(
                "SELECT cron.schedule_in_database(%s, %s, command, database, %s)"
                "  FROM cron.job WHERE jobname = 'nightly'",
                [name, AT_START, "scheduler"],
            )

    server.end(crash=False)
    server.start()

    def both_ended():
        runs = ended_runs(server)
        return {"first", "second"} <= {name for name, *_ in runs} and runs

    runs = wait_for(both_ended, 60, "pg_cron has run what is due at its start")
    assert {("scheduler", "succeeded")} == {(user, status) for _, user, status in runs}
    with connect(server, "shop") as shop:
        assert [("shop.tasks.nightly", "slow", "nightly")] == shop.execute(
            "SELECT task, queue, dedup_key FROM pgqueue_job"
        ).fetchall()
