"""What killed workers leave on the server."""

from __future__ import annotations

from django_pgqueue.models import Worker
from tests.harness.waiting import wait_for
from tests.harness.worker_process import (
    sessions_have_ended,
    start_worker,
    the_ledger,
)

__all__ = ["start_worker", "the_ledger"]

WAITING = """
SELECT count(*) > 0 FROM pg_stat_activity
 WHERE application_name LIKE 'pgqueue %' AND datname = current_database()
   AND cardinality(pg_blocking_pids(pid)) > 0
"""


def test_a_killed_worker_writes_nothing_once_its_sessions_have_ended(
    start_worker, cursor, other_cursor
):
    """A statement of it that waits for a lock outlives it: the next test would see."""

    def is_waiting():
        return other_cursor.execute(WAITING).fetchone()[0]

    with cursor.connection.transaction():
        cursor.execute("LOCK TABLE pgqueue_worker")
        worker = start_worker(wait=False)
        wait_for(is_waiting, what="it waits to be registered")
        worker.destroy()
        has_outlived = is_waiting()
        wait_for(sessions_have_ended, what="the server is done with it")

    with cursor.connection.transaction():
        cursor.execute("LOCK TABLE pgqueue_worker")  # After whoever waits for it.
    assert has_outlived
    assert 0 == Worker.objects.count()
