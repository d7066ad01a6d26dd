"""Stats: how many jobs of each state a queue has, counted up to a limit."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.queues.pause import pause
from django_pgqueue.queues.stats import queue_stats
from tests.harness.factories import (
    make_dead_letter,
    make_job,
    make_jobs,
    make_leased_job,
)

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def one(cursor, name="default", **limits):
    (stats,) = queue_stats(cursor, [name], **limits)
    return stats


def test_each_state_is_counted(cursor):
    """Over all priorities; a lapsed lease is ready."""
    make_job(visible_at=-HOUR)
    make_leased_job("a", visible_at=-SECOND, priority=3)
    make_job(visible_at=HOUR)
    make_jobs(2, visible_at=HOUR, priority=-1)
    make_leased_job("a")
    make_jobs(4, visible_at=HOUR, attempt=1, deliveries=1)
    make_jobs(5, visible_at=None)
    for _ in range(6):
        make_dead_letter()

    stats = one(cursor)

    assert (2, 3, 1, 4, 5, 6) == (
        stats.ready,
        stats.scheduled,
        stats.running,
        stats.retrying,
        stats.parked,
        stats.dead,
    )
    assert False is stats.is_partial
    assert 3600 == pytest.approx(stats.oldest_ready_seconds, abs=10)


def test_all_queues_are_those_with_a_job_a_dead_letter_or_a_row(cursor):
    """Each once, in the order of names."""
    make_job(queue="b", priority=1)
    make_job(queue="b")
    make_dead_letter(queue="c")
    make_dead_letter(queue="b")
    pause(cursor, "a")

    found = queue_stats(cursor)

    assert [("a", 0, 0), ("b", 2, 1), ("c", 0, 1)] == [
        (stats.name, stats.ready, stats.dead) for stats in found
    ]


def test_counts_stop_at_the_limit(cursor):
    """Then the number means "or more"; those of other queues are not affected."""
    make_jobs(5)
    make_jobs(5, priority=1)
    make_jobs(9, visible_at=HOUR)
    make_jobs(9, visible_at=None)
    make_jobs(3, queue="mail")
    for _ in range(8):
        make_dead_letter()

    default, mail = queue_stats(cursor, count_max=7)

    assert (7, 7, 7, 7, 7) == (
        default.ready,
        default.scheduled,
        default.parked,
        default.dead,
        default.count_max,
    )
    assert (True, False) == (default.is_partial, mail.is_partial)
    assert 3 == mail.ready
