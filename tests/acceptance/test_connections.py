"""The connections of a worker: clean between jobs, named, none before the fork."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connection

from tests.app import crash_tasks
from tests.app.models import Order
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final

pytestmark = pytest.mark.smoke

BACKENDS = """
SELECT application_name, state FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
   AND backend_type = 'client backend'
"""


def backends():
    with connection.cursor() as cursor:
        cursor.execute(BACKENDS)
        return cursor.fetchall()


@pytest.mark.parametrize(
    "bad",
    [
        crash_tasks.leaves_transaction_open,
        crash_tasks.leaves_transaction_broken,
        crash_tasks.breaks_connection,
    ],
    ids=["open", "broken", "cut"],
)
def test_what_a_task_leaves_in_its_connection_does_not_reach_the_next_job(
    start_worker, the_ledger, bad
):
    """One thread, so one connection: the job is settled, the next one starts clean."""
    worker = start_worker(threads=1)
    jobs = []

    for _ in range(3):
        jobs += enqueue(bad) + enqueue(crash_tasks.uses_connection)
    final = wait_until_final(jobs)

    assert {"succeeded"} == {place.state for place in final.values()}
    assert {1} == {*the_ledger.starts().values()}
    assert ["committed"] * 3 == [order.name for order in Order.objects.all()]
    assert {False} == {
        entry.note for entry in the_ledger.entries("start") if entry.job in jobs[1::2]
    }
    wait_for(
        lambda: not [name for name, state in backends() if state.startswith("idle in")],
        what="nobody is idle in a transaction",
    )
    assert 1 == len(worker.names())


def test_a_dead_connection_of_a_thread_is_replaced_before_the_next_job(
    start_worker, the_ledger
):
    """The server ends it between two jobs; the second one does not notice."""
    start_worker(threads=1)
    wait_until_final(enqueue(crash_tasks.uses_connection))

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = ''"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
    final = wait_until_final(enqueue(crash_tasks.uses_connection, 3))

    assert {("succeeded", 1)} == {
        (place.state, place.attempt) for place in final.values()
    }


def test_the_supervisor_has_no_connection_and_loops_are_named(start_worker, the_ledger):
    """Each loop's backend says what it is, and of which worker process."""
    worker = start_worker("--queues=default", processes=2)
    wait_until_final(enqueue(crash_tasks.record, 10))
    loops = ("listener", "claimer", "settler", "heartbeat")

    def names():
        return {name for name, _ in backends() if name.startswith("pgqueue ")}

    def are_named():
        found = names()
        return all(
            any(n.startswith(f"pgqueue {loop} {who}"[:63]) for n in found)
            for who in worker.names()
            for loop in loops
            if loop != "settler"
        )

    wait_for(are_named, what=f"every loop has a named backend: {names()}")
    assert [] == [name for name in names() if "supervisor" in name]
    assert [] == sockets_of(worker.pid)
    assert len(backends()) <= 2 * (len(loops) + 4) + 2


def sockets_of(pid):
    """Return the network and Unix sockets that a process has open."""
    links = [fd.readlink().name for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if link.startswith("socket:")]
