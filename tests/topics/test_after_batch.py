"""What follows a batch that fails: decided purely."""

from datetime import timedelta

import pytest

from django_pgqueue import Cancel, Reject, Retry, RetryLater, Snooze, consume
from django_pgqueue.exceptions import TaskTimeout, UndecodablePayload
from django_pgqueue.topics.consume import declared
from django_pgqueue.topics.run_batch import (
    Again,
    Halted,
    Moved,
    Skipped,
    decide,
    decide_before,
)

ERROR = ValueError("no")
UNREADABLE = UndecodablePayload("no")
MINUTE = timedelta(minutes=1)
ONE_BY_ONE = Again(timedelta(0), one_by_one=True, counts=False, is_failure=False)
# Whole delays: 5 s, 10 s, …
ONE = 1.0


def count(messages):
    """Take a batch."""


def consumer(**said):
    consume("clicks", group="g", **{"retries": 2, **said})(count)
    (made,) = declared()
    return made


def after(made, *, messages=1, failures=0, error=ERROR):
    return decide(
        made, messages=messages, failures=failures, error=error, random=lambda: ONE
    )


@pytest.mark.parametrize(
    "failures, error, expected",
    [
        (0, ERROR, Again(timedelta(seconds=5))),
        (1, ERROR, Again(timedelta(seconds=10), one_by_one=True, counts=False)),
        (0, Reject("no"), Again(timedelta(0), one_by_one=True, counts=False)),
        (0, RetryLater("1m"), Again(MINUTE)),
        (5, Snooze("1m"), Again(MINUTE, counts=False, is_failure=False)),
        (5, Cancel(), Moved()),
    ],
)
def test_a_batch_is_tried_once_more_and_then_one_by_one(failures, error, expected):
    """Unless its handler says something else."""
    assert expected == after(consumer(), messages=9, failures=failures, error=error)


@pytest.mark.parametrize(
    "said, failures, error, expected",
    [
        ({}, 0, ERROR, Again(timedelta(seconds=5), one_by_one=True)),
        ({}, 1, ERROR, Again(timedelta(seconds=10), one_by_one=True)),
        ({}, 2, ERROR, Skipped("exhausted")),
        ({}, 2, TaskTimeout(), Skipped("timeout")),
        ({}, 0, Reject("no"), Skipped("rejected")),
        ({}, 1, RetryLater("1m"), Again(MINUTE, one_by_one=True)),
        ({}, 2, RetryLater("1m"), Skipped("exhausted")),
        ({}, 9, Snooze("1m"), Again(MINUTE, counts=False, is_failure=False)),
        ({}, 2, Cancel(), Moved()),
        ({"on_error": "halt"}, 1, ERROR, Again(timedelta(seconds=10), one_by_one=True)),
        ({"on_error": "halt"}, 2, ERROR, Halted()),
        ({"on_error": "halt"}, 0, Reject("no"), Skipped("rejected")),
        ({"on_error": "retry"}, 99, ERROR, Again(timedelta(hours=1), one_by_one=True)),
        ({"ack_policy": "reject_on_error"}, 0, ERROR, Skipped("rejected")),
        (
            {"ack_policy": "reject_on_error", "on_error": "halt"},
            0,
            ERROR,
            Halted(),
        ),
        ({"retries": Retry(never=(ValueError,))}, 0, ERROR, Skipped("exhausted")),
        ({}, 0, UNREADABLE, Skipped("undecodable")),
        ({"on_error": "halt"}, 0, UNREADABLE, Halted()),
        (
            {"on_error": "retry"},
            0,
            UNREADABLE,
            Again(timedelta(seconds=5), one_by_one=True),
        ),
    ],
)
def test_a_message_gets_its_attempts_and_then_the_policy(
    said, failures, error, expected
):
    """Counted from the first time that it came alone."""
    assert expected == after(consumer(**said), failures=failures, error=error)


@pytest.mark.parametrize(
    "said, messages, failures, expected",
    [
        ({}, 9, 0, None),
        ({}, 9, 2, ONE_BY_ONE),
        ({"ack_policy": "first"}, 9, 1, None),
        ({"ack_policy": "first"}, 9, 2, ONE_BY_ONE),
        ({}, 1, 2, None),
        ({}, 1, 3, Skipped("lease_expired")),
        ({"on_error": "halt"}, 1, 3, Halted()),
        ({"on_error": "retry"}, 1, 99, None),
        # What took its reader down is behind the position; twice, it is not.
        ({"ack_policy": "first"}, 1, 2, None),
        ({"ack_policy": "first"}, 1, 3, Skipped("lease_expired")),
    ],
)
def test_what_takes_its_reader_down_does_not_do_so_for_ever(
    said, messages, failures, expected
):
    """Leases that have lapsed count, and are looked at before the call."""
    before = decide_before(consumer(**said), messages=messages, failures=failures)

    assert expected == before
