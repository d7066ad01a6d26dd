"""What a worker says when it starts, and when it refuses to."""

from __future__ import annotations

import pytest
from django.db import connection, connections

from tests.app import crash_tasks
from tests.harness.fork_server import FRESH
from tests.harness.worker_process import enqueue, wait_until_final

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

EXIT_REFUSED, EXIT_USAGE = 1, 2


@pytest.fixture
def by_a_new_python(monkeypatch):
    """Nothing of Django is imported beforehand: it is the start that is tested."""
    monkeypatch.setenv(FRESH, "1")


def refused(worker, *words):
    """Assert that it refused in one clear message that holds these words."""
    assert EXIT_REFUSED == worker.wait()
    text = worker.log.read_text()
    assert "Traceback" not in text
    for word in words:
        assert word in text
    return True


@pytest.mark.usefixtures("by_a_new_python")
def test_it_prints_what_it_understood(start_worker):
    """Queues, concurrency, wake, lease; and the connections it needs and may have."""
    worker = start_worker(
        "--queues=b,a",
        "--queues=c",
        processes=2,
        threads=3,
        pgqueue={"TASK_MODULES": ["tasks", "crash_tasks"]},  # None of them is async.
    )

    with connection.cursor() as cursor:
        cursor.execute("SHOW max_connections")
        most = int(cursor.fetchone()[0])
        cursor.execute("SHOW superuser_reserved_connections")
        most -= int(cursor.fetchone()[0])
    text = worker.log.read_text()
    assert "queues       b, a, c" in text
    assert "2 x 3" in text
    # Six loops and three threads in each process, and three for the chores.
    assert f"needs up to 21, the server allows {most}" in text
    assert connections["default"].settings_dict["NAME"] in text


def test_it_refuses_a_database_without_migrations(start_worker, empty_database):
    """The message names them and the command."""
    worker = start_worker(databases={"default": {"NAME": empty_database}}, wait=False)

    assert refused(worker, "0001_core", "manage.py migrate pgqueue")


def test_it_refuses_a_database_without_the_claim_index(start_worker):
    """Claims would scan the table."""
    rename = "ALTER INDEX {} RENAME TO {}"
    with connection.cursor() as cursor:
        cursor.execute(rename.format("pgqueue_job_claim", "hidden"))
        try:
            worker = start_worker(wait=False)
            assert refused(worker, "pgqueue_job_claim", "REINDEX")
        finally:
            cursor.execute(rename.format("hidden", "pgqueue_job_claim"))


@pytest.mark.usefixtures("by_a_new_python")
def test_it_refuses_a_database_that_is_down(start_worker):
    """One line, no traceback."""
    nobody = {"HOST": "127.0.0.1", "PORT": 1}
    worker = start_worker(databases={"default": nobody}, wait=False)

    assert refused(worker, "cannot be used", "refused")


def test_it_polls_where_listen_is_off(start_worker):
    """It warns of too few connections, and starts all the same: not all are needed."""
    pgqueue = {"LISTEN": False, "POLL_INTERVAL_SECONDS": 0.2}
    worker = start_worker(threads=1_000, pgqueue=pgqueue)

    wait_until_final(enqueue(crash_tasks.record, 5))

    assert "LISTEN" not in worker.log.read_text()
    assert worker.lines("lower --processes or --threads")
