"""Outcome: what becomes of a job after an attempt, decided without side effects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue import Cancel, Reject, Retry, RetryLater, Snooze, TaskTimeout
from django_pgqueue.conf import get_settings
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.options import TaskOptions
from django_pgqueue.tasks.outcome import (
    Cancelled,
    Expired,
    GaveUp,
    Retried,
    Succeeded,
    decide,
    outcome_after,
)
from django_pgqueue.tasks.prepare import decide_before, decide_unknown

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

PLAIN = Retry(backoff="constant", base=7, jitter="none")
PICKY = Retry(on=(OSError,), base=7, jitter="none")


def claimed(**fields):
    """Return a claimed job as a plain value."""
    return Claimed(
        **{
            "id": 1,
            "delivery": 1,
            "task": "shop.send",
            "args": "[]",
            "kwargs": "{}",
            "headers": "{}",
            "queue": "default",
            "priority": 0,
            "attempt": 1,
            "max_attempts": 5,
            "crashes": 0,
            "runs_alone": False,
            "last_error": None,
            "enqueued_at": NOW,
            "accumulate_key": None,
            "lane": None,
            "lane_policy": None,
            "is_paced": False,
            "expired": None,
            "claimed_at": NOW,
            "due_at": NOW,
            **fields,
        }
    )


@pytest.mark.parametrize(
    "policy, attempt, error, expected",
    [
        (PLAIN, 1, None, Succeeded()),
        (PLAIN, 1, ValueError(), Retried(timedelta(seconds=7))),
        (PLAIN, 4, ValueError(), Retried(timedelta(seconds=7))),
        (PLAIN, 5, ValueError(), GaveUp("exhausted")),
        (PLAIN, 1, SystemExit(), Retried(timedelta(seconds=7))),
        (PICKY, 1, ValueError(), GaveUp("exhausted")),
        (PLAIN, 1, Reject("no"), GaveUp("rejected")),
        (PLAIN, 1, TaskTimeout(), Retried(timedelta(seconds=7))),
        (PLAIN, 5, TaskTimeout(), GaveUp("timeout")),
        # TaskTimeout is a TimeoutError, and that is an OSError.
        (PICKY, 1, TaskTimeout(), Retried(timedelta(seconds=7))),
        (PLAIN, 1, RetryLater(seconds=30), Retried(timedelta(seconds=30))),
        (PLAIN, 5, RetryLater(seconds=30), GaveUp("exhausted")),
    ],
)
def test_an_attempt_ends_as_the_policy_says(policy, attempt, error, expected):
    """The fifth attempt of five is the last."""
    assert expected == decide(policy, attempt=attempt, max_attempts=5, error=error)


@pytest.mark.parametrize("attempt", [1, 5, 32_767])
def test_a_snooze_burns_no_attempt_and_is_no_failure(attempt):
    """Also in the last attempt: it may be asked for without end."""
    assert Retried(MINUTE, gives_attempt_back=True, is_failure=False) == decide(
        PLAIN, attempt=attempt, max_attempts=5, error=Snooze("1m")
    )


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({}, None),
        ({"attempt": 6}, GaveUp("exhausted")),
        # Those that were attempts do not count among the deliveries.
        ({"attempt": 3, "delivery": 103}, GaveUp("exhausted")),
        ({"crashes": 2}, None),
        ({"crashes": 3, "last_error": "lease_expired"}, GaveUp("lease_expired")),
        ({"expired": True}, Expired()),
        # It never ran to its end and its time has passed: nobody's failure.
        ({"expired": True, "crashes": 3, "attempt": 6}, Expired()),
    ],
)
def test_a_job_that_has_had_enough_is_not_run_to_find_out(fields, expected):
    """None: run it. The limits themselves are still allowed."""
    assert expected == decide_before(
        claimed(**fields), deliveries_max=100, crashes_max=3
    )


@pytest.mark.parametrize(
    "age, seconds",
    [(None, 5), (0, 5), (4, 5), (20, 20), (119, 119), (121, 120), (3_599, 120)],
)
def test_a_job_of_an_unknown_task_is_held_for_about_its_age(age, seconds):
    """Soon at first, then for a thirtieth of the grace; it burns no attempt."""
    since = None if age is None else NOW - timedelta(seconds=age)

    assert Retried(
        timedelta(seconds=seconds),
        gives_attempt_back=True,
        is_failure=False,
        unknown_task=True,
    ) == decide_unknown(unknown_since=since, now=NOW, grace=timedelta(hours=1))


def test_a_redrive_counts_deliveries_anew():
    """Those before it are told by its header."""
    job = claimed(delivery=150, attempt=1)

    assert (
        decide_before(job, deliveries_max=100, crashes_max=3, deliveries_before=100)
        is None
    )
    assert GaveUp("exhausted") == decide_before(
        job, deliveries_max=100, crashes_max=3, deliveries_before=49
    )


@pytest.mark.parametrize(
    "age, grace", [(3_600, 3_600), (9_999, 3_600), (0, 0), (None, 0)]
)
def test_after_the_grace_an_unknown_task_is_a_dead_letter(age, grace):
    """A grace of zero holds nothing."""
    since = None if age is None else NOW - timedelta(seconds=age)

    assert GaveUp("unknown_task") == decide_unknown(
        unknown_since=since, now=NOW, grace=timedelta(seconds=grace)
    )


# Cancelled ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error, expected",
    [
        (None, Succeeded()),
        (ValueError(), Cancelled()),
        (RetryLater(5), Cancelled()),
        (TaskTimeout(), Cancelled()),
        (Cancel(), Cancelled()),
    ],
)
def test_a_job_that_was_asked_to_stop_ends(error, expected):
    """One that returned has done its work; any other end is what was asked for."""
    assert expected == decide(
        PLAIN, attempt=1, max_attempts=5, error=error, is_cancelled=True
    )


# Policies ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error, expected",
    [
        (None, Succeeded()),
        (ValueError(), GaveUp("rejected")),
        (RetryLater(5), GaveUp("rejected")),
        (TaskTimeout(), GaveUp("rejected")),
        (Cancel(), Cancelled()),
        (
            Snooze(5),
            Retried(timedelta(seconds=5), gives_attempt_back=True, is_failure=False),
        ),
    ],
)
def test_reject_on_error_gives_up_at_any_failure(error, expected):
    """A snooze is none, and neither is a cancel."""
    assert expected == decide(
        PLAIN, attempt=1, max_attempts=5, error=error, ack_policy="reject_on_error"
    )


@pytest.mark.parametrize(
    "age, error, expected",
    [
        (timedelta(seconds=53), ValueError(), Retried(timedelta(seconds=7))),
        (timedelta(seconds=54), ValueError(), GaveUp("exhausted")),
        (timedelta(seconds=54), TaskTimeout(), GaveUp("timeout")),
        (timedelta(seconds=31), RetryLater(30), GaveUp("exhausted")),
    ],
)
def test_no_attempt_starts_beyond_max_age(age, error, expected):
    """The delay before it counts, whoever names it."""
    policy = Retry(backoff="constant", base=7, jitter="none", max_age="1m")

    assert expected == decide(policy, attempt=1, max_attempts=5, error=error, age=age)


@pytest.mark.parametrize(
    "policy, expected",
    [
        ("skip", Retried(timedelta(seconds=7))),
        ("dead-letter", GaveUp("rejected")),
    ],
)
def test_a_failure_is_the_last_where_the_group_says_so(policy, expected):
    """However many attempts the job has left; a snooze is no failure."""
    options = TaskOptions(retries=PLAIN).for_queue("default", get_settings())

    assert expected == outcome_after(claimed(lane_policy=policy), options, OSError())
    snoozed = outcome_after(claimed(lane_policy=policy), options, Snooze(9))
    assert timedelta(seconds=9) == snoozed.delay
