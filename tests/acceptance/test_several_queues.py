"""Several queues in one worker: patterns, orders, weights, caps and ageing."""

from __future__ import annotations

import time

import pytest

from tests.app import crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import live_row, wait_until_final

pytestmark = pytest.mark.slow


# Of two threads, when each job takes 0.005 s.
STARTS_A_SECOND = 400

# Jobs of high priority: of some seconds.
FLOOD = 1_500


def put(queue, count=1, *, to=crash_tasks.record, priority=0, **kwargs):
    """Enqueue *count* jobs in a queue; each notes its queue."""
    using = to.using(queue=queue, priority=priority)
    return [job.id for job in using.bulk([{"note": queue, **kwargs}] * count)]


def notes(the_ledger):
    return [entry.note for entry in the_ledger.entries("start") if entry.note]


def most_at_once(the_ledger, ids):
    """Return how many of *ids* ran at the same time, at most."""
    running, most = 0, 0
    for entry in the_ledger.entries():
        if entry.job in ids and entry.event in {"start", "end"}:
            running += 1 if entry.event == "start" else -1
            most = max(most, running)
    return most


# Which queues ------------------------------------------------------------------------


def test_a_pattern_serves_queues_that_are_made_later(start_worker, the_ledger):
    """By their wake, ten minutes before the poll; what is left out stays."""
    start_worker("--queues=shop.*,-shop.old", "--queues=mail")
    first = put("shop.eu") + put("mail")
    wait_until_final(first)
    left = put("shop.old") + put("shopping") + put("report")

    wait_until_final(put("shop.us") + put("mail"))

    for job in left:
        assert (0, None) == live_row(job, "deliveries", "leased_by")
    assert {"shop.eu", "shop.us", "mail"} == set(notes(the_ledger))


# Who goes first ----------------------------------------------------------------------


# Caps --------------------------------------------------------------------------------


# Ageing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["--queues=*"], ["--queues=high,low", "--queue-order=strict"]]
)
def test_a_job_of_low_priority_starts_though_higher_ones_keep_coming(
    start_worker, the_ledger, arguments
):
    """
    A second after it was due, then within 20 starts, a look at all queues and what was
    claimed ahead. Before that, priorities mean what they say.
    """
    slowly = crash_tasks.record_slowly
    put("high", FLOOD, to=slowly, priority=50)
    start_worker(*arguments, threads=2, pgqueue={"AGEING_SECONDS": 1})
    wait_for(lambda: the_ledger.entries("start"), what="the flood has begun")
    began = time.monotonic()
    (low,) = put("low", priority=-50)
    enqueued_at = time.monotonic()

    def low_started():
        return [e for e in the_ledger.entries("start") if e.job == low]

    (start,) = wait_for(low_started, what="the low one has started")

    assert 0.9 < start.at - began
    # 20, 40 in the 0.1 s of a look, and 40 claimed ahead. Starts are counted, and not
    # seconds, in which a busy machine has fewer of them.
    before = [
        entry
        for entry in the_ledger.entries("start")
        if entry.note == "high" and entry.at < start.at
    ]
    passed_over = [entry for entry in before if enqueued_at + 1 < entry.at]
    assert len(passed_over) < STARTS_A_SECOND / 2
    assert len(before) < FLOOD - 200
