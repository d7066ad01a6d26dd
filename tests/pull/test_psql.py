"""Plain psql and Python on the same rows, each killed in the middle of its work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from django_pgqueue.testing.embedded import find_binaries
from tests.harness.system import require_system
from tests.harness.waiting import patience, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

HERE = Path(__file__).parent
MESSAGES = 300

SLEEPERS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event = 'PgSleep'
"""


@pytest.fixture
def psql(conninfo):
    """A function that starts psql with so many rounds of round.sql on its input."""
    program = require_system(
        str(find_binaries().folder / "psql"), "psql", reason="to be a worker in psql"
    )
    started = []

    def psql(rounds, seconds, stops=""):
        process = subprocess.Popen(
            [
                *(
                    program,
                    "-qAtX",
                    "-v",
                    "ON_ERROR_STOP=1",
                    "-v",
                    f"seconds={seconds}",
                ),
                *("-v", f"stops={stops}", conninfo),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            cwd=HERE,
        )
        process.stdin.write("\\i round.sql\n" * rounds)
        process.stdin.close()
        started.append(process)
        return process

    yield psql
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def python():
    """A function that starts tests/pull/worker.py."""
    told = {
        "databases": {"default": {"NAME": connection.settings_dict["NAME"]}},
        "pgqueue": {},
    }
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.worker_settings",
        "PGQUEUE_TEST_WORKER": json.dumps(told),
    }
    started = []

    def python(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.pull.worker", *arguments],
            env={**os.environ, **environment},
        )
        started.append(process)
        return process

    yield python
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_none_is_lost_and_none_is_done_twice(cursor, psql, python):
    """The effect and the ack are one transaction, so each number is there once: also of
    those that a killed receiver had, which come again when their time is over."""
    cursor.execute("CREATE TABLE effect (number integer, by text)")
    try:
        cursor.execute("SELECT pgqueue_declare_queue('both', 60, 50)")
        cursor.execute(
            "SELECT pgqueue_send_many("
            " 'both', jsonb_agg(jsonb_build_object('number', n)),"
            " lanes => jsonb_agg(CASE WHEN n %% 3 = 0 THEN 'a' || n %% 4 END))"
            " FROM generate_series(1, %s) n",
            [MESSAGES],
        )
        victims = [psql(1, 1, "after effect"), python("stop")]
        wait_for(
            lambda: cursor.execute(SLEEPERS).fetchone() == (2,),
            what="both are between their effect and their ack",
        )
        for victim in victims:
            victim.kill()
        # The server would notice when they have slept.
        cursor.execute(SLEEPERS.replace("count(*)", "pg_terminate_backend(pid)"))
        worker = python()
        wait_for(
            lambda: cursor.execute("SELECT count(*) > 0 FROM effect").fetchone()[0],
            what="Python has begun",
        )
        psql(4 * MESSAGES, 60)
        wait_for(
            lambda: (
                cursor.execute("SELECT count(*) FROM pgqueue_job").fetchone() == (0,)
            ),
            timeout=60,
            what="all is done",
        )
        assert 0 == worker.wait(60 * patience())

        effects = "SELECT count(*), count(DISTINCT number) FROM effect"
        assert (MESSAGES, MESSAGES) == cursor.execute(effects).fetchone()
        by = "SELECT DISTINCT by FROM effect ORDER BY 1"
        assert [("Python",), ("psql",)] == cursor.execute(by).fetchall()
        cursor.execute("SELECT count(*), max(deliveries) FROM pgqueue_archived_job")
        assert (MESSAGES, 2) == cursor.fetchone()
    finally:
        cursor.execute("DROP TABLE effect")
