"""
Capacity: how many worker threads hold a wait, reckoned from what hours have shown.

Jobs of an hour come at random, and run for as long as theirs did on average: then
Erlang's formula C says how many of them wait, and for how long. Jobs that come in
bursts wait for longer than that; the p95 that the hour had stands beside, to compare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django_pgqueue.pipeline.queue_hours import QueueHour

# Of the jobs, so many start within the wait.
SHARE_IN_TIME = 0.95

HOUR_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class Need:
    """
    What an hour needed.

    Attributes:
        hour: When it began.
        started: Deliveries in it.
        run_seconds: What one took, on average.
        load: How many threads were busy, on average: started * run_seconds / 3,600.
        threads: The fewest with which 95 % of the jobs start within the wait.
        late_share: Of the jobs, those that wait longer all the same.
        late_share_before: The same with a thread less; 1: their work only grows.
        wait_p95: What the hour had, with the workers there were.
    """

    hour: datetime
    started: int
    run_seconds: float
    load: float
    threads: int
    late_share: float
    late_share_before: float
    wait_p95: float | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a queue needs: in its busiest hour, and in 19 of 20 of its hours."""

    busiest: Need
    usual: Need
    hours: int


def capacity(hours: Sequence[QueueHour], wait_seconds: float) -> Capacity | None:
    """
    Return what a queue needs to hold *wait_seconds*; None: no hour had a delivery.

    Args:
        hours: Of one queue.
        wait_seconds: From due until start, for 95 % of the jobs.
    """
    busy = sorted(
        (hour for hour in hours if hour.started and hour.worker_seconds > 0),
        key=lambda hour: (hour.worker_seconds, hour.started),
    )
    if not busy:
        return None
    usual = busy[max(math.ceil(len(busy) * SHARE_IN_TIME) - 1, 0)]
    return Capacity(need(busy[-1], wait_seconds), need(usual, wait_seconds), len(busy))


def need(hour: QueueHour, wait_seconds: float) -> Need:
    """Return what *hour* needed to hold *wait_seconds*."""
    run_seconds = hour.worker_seconds / hour.started
    load = hour.worker_seconds / HOUR_SECONDS
    threads, late, before = 0, 1.0, 1.0
    # Erlang's B, of one thread after the other: the share that finds all of them busy.
    blocked = 1.0
    while late > 1 - SHARE_IN_TIME:
        threads += 1
        blocked = load * blocked / (threads + load * blocked)
        before, late = late, _late(blocked, threads, load, run_seconds, wait_seconds)
    return Need(
        hour.hour,
        hour.started,
        run_seconds,
        load,
        threads,
        late,
        before,
        hour.wait_p95,
    )


def _late(
    blocked: float, threads: int, load: float, run_seconds: float, wait_seconds: float
) -> float:
    """Return the share of jobs that wait longer, by Erlang's C."""
    if threads <= load:
        return 1.0
    waits = blocked / (1 - load / threads * (1 - blocked))
    return waits * math.exp(-(threads - load) * wait_seconds / run_seconds)
