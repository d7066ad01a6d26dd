"""Which queues a worker serves, and in which order."""

from __future__ import annotations

from django_pgqueue.models import Queue
from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import live_row, wait_until_final

POLL = {"POLL_INTERVAL_SECONDS": 0.5}


def put(queue, count=1, priority=0, note=None):
    """Enqueue *count* jobs in a queue; each notes its queue, or *note*."""
    to = crash_tasks.record.using(queue=queue, priority=priority)
    return [result.id for result in to.bulk([{"note": note or queue}] * count)]


def order(the_ledger):
    return [entry.note for entry in the_ledger.entries("start") if entry.note]


def test_a_worker_without_queues_serves_one_that_did_not_exist(
    start_worker, the_ledger
):
    """Its name comes with the wake, ten minutes before the poll."""
    start_worker()
    wait_until_final(put("first"))

    wait_until_final(put("never_seen_before"))

    wait_for(
        lambda: (
            {"first", "never_seen_before"}
            <= set(Queue.objects.values_list("name", flat=True))
        ),
        what="both have a row",
    )


def test_a_paused_queue_is_left_alone_until_it_is_resumed(start_worker, the_ledger):
    """Others go on; nothing is claimed from it, not even when it is woken for."""
    Queue.objects.create(name="quiet")
    Queue.objects.filter(name="quiet").update(paused_at="2026-01-01T00:00Z")
    start_worker(pgqueue=POLL)
    (paused,) = put("quiet")
    for _ in range(5):
        wait_until_final(put("busy", 5))

    assert (0, 0) == live_row(paused, "attempt", "deliveries")
    Queue.objects.filter(name="quiet").update(paused_at=None)
    wait_until_final([paused])
