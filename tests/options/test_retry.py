"""Retry: when a failed job runs again, and when it has had enough."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue import DeclarationError, Retry
from django_pgqueue.bounds import ATTEMPTS_MAX
from django_pgqueue.options.retry import BACKOFFS, as_retry
from tests.harness.ids import told

ERROR = ValueError("x")


def delays(policy, count=6, random=lambda: 1.0):
    """Return the seconds after each of the first *count* failures."""
    return [
        policy.delay(attempt, ERROR, random=random).total_seconds()
        for attempt in range(1, count + 1)
    ]


@pytest.mark.parametrize(
    "backoff, expected",
    [
        ("exponential", [5, 10, 20, 40, 80, 160]),
        ("linear", [5, 10, 15, 20, 25, 30]),
        ("constant", [5, 5, 5, 5, 5, 5]),
    ],
)
def test_the_delay_grows_as_the_back_off_says(backoff, expected):
    """The first one is the base."""
    assert expected == delays(Retry(backoff=backoff, base=5, jitter="none"))


def test_the_default_is_five_attempts_up_to_an_hour():
    """Exponential from 5 s, with full jitter."""
    policy = Retry()

    assert 5 == policy.max_attempts
    assert [5, 10, 20] == delays(policy, 3)
    assert 3600 == policy.delay(20, ERROR, random=lambda: 1.0).total_seconds()
    assert [0, 0, 0] == delays(policy, 3, random=lambda: 0.0)


def test_a_job_may_be_too_old_for_another_attempt():
    """By its age when that attempt would start."""
    policy = Retry(max_age="2d")

    assert not policy.is_too_old(timedelta(days=2))
    assert policy.is_too_old(timedelta(days=2, microseconds=1))
    assert not Retry().is_too_old(timedelta(days=3_000))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_age": 0}, r"Retry\(max_age=…\) is 0; it must be longer than zero"),
        ({"max_age": "long"}, r"Retry\(max_age=…\) is 'long', which is no duration"),
        ({"backoff": lambda attempt: 5}, "it must take two arguments, the attempt"),
        ({"backoff": ["linear"]}, "it must be one of exponential, linear, constant"),
        ({"jitter": ["full"]}, "it must be one of full, equal, none"),
        ({"base": -1}, r"Retry\(base=…\) is -1"),
        ({"cap": "5 parsecs"}, r"Retry\(cap=…\) is '5 parsecs'"),
        ({"on": ValueError}, "it must be a tuple of exception classes"),
        ({"never": ("x",)}, "it must be a tuple of exception classes"),
    ],
    ids=told,
)
def test_what_no_policy_can_be_is_refused_where_it_is_written(options, message):
    """Not after the first failure."""
    with pytest.raises(DeclarationError, match=message):
        Retry(**options)


def test_an_async_back_off_is_refused():
    """Nobody would await it."""

    async def later(attempt, error):
        return 5

    with pytest.raises(DeclarationError, match="it must be a plain function"):
        Retry(backoff=later)


def test_a_function_says_the_delay_from_attempt_and_error():
    """In any form of a duration; the cap and the jitter still hold."""
    seen = []

    def backoff(attempt, error):
        seen.append((attempt, error))
        return ["1s", 2, timedelta(hours=5)][attempt - 1]

    policy = Retry(backoff=backoff, jitter="none")

    assert [1, 2, 3600] == delays(policy, 3)
    assert [(1, ERROR), (2, ERROR), (3, ERROR)] == seen


@given(
    attempt=st.integers(1, ATTEMPTS_MAX),
    drawn=st.floats(0, 1, exclude_max=True),
    backoff=st.sampled_from(BACKOFFS),
)
def test_jitter_stays_in_its_bounds(attempt, drawn, backoff):
    """Full: from zero to the delay; equal: from half of it; none: the delay."""
    whole = Retry(backoff=backoff, jitter="none").delay(attempt, ERROR)
    full = Retry(backoff=backoff, jitter="full").delay(
        attempt, ERROR, random=lambda: drawn
    )
    equal = Retry(backoff=backoff, jitter="equal").delay(
        attempt, ERROR, random=lambda: drawn
    )

    assert timedelta(0) <= full <= whole
    assert whole / 2 <= equal + timedelta(microseconds=1)
    assert equal <= whole


@pytest.mark.parametrize(
    "policy, error, expected",
    [
        (Retry(), ValueError(), True),
        (Retry(), SystemExit(), True),
        (Retry(on=(OSError,)), ConnectionError(), True),
        (Retry(on=(OSError,)), ValueError(), False),
        (Retry(never=(KeyError,)), KeyError(), False),
        (Retry(never=(KeyError,)), LookupError(), True),
        (Retry(on=(LookupError,), never=(KeyError,)), KeyError(), False),
        (Retry(on=()), ValueError(), False),
    ],
)
def test_on_and_never_say_which_errors_are_retried(policy, error, expected):
    """Subclasses count; never wins over on."""
    assert expected is policy.handles(error)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"max_attempts": 0},
            r"max_attempts=0\): it must be a whole number from 1 to 32,767",
        ),
        ({"max_attempts": -1}, r"max_attempts=-1\).*from 1 to 32,767"),
        ({"max_attempts": 32_768}, r"max_attempts=32768\).*from 1 to 32,767"),
        ({"max_attempts": True}, r"max_attempts=True\): it must be a whole number"),
        ({"max_attempts": 1.5}, r"max_attempts=1.5\): it must be a whole number"),
        ({"backoff": "cubic"}, r"backoff='cubic'\).*exponential, linear, constant"),
        ({"jitter": "some"}, r"jitter='some'\).*full, equal, none"),
        ({"base": "soon"}, r"Retry\(base=…\) is 'soon', which is no duration"),
        ({"base": -1}, r"Retry\(base=…\) is -1; it must be zero or longer"),
        ({"cap": "11000d"}, r"Retry\(cap=…\) is '11000d'; the longest is 3653 d"),
        ({"on": ValueError}, r"on=.*ValueError.*a tuple of exception classes"),
        ({"never": (1,)}, r"never=\(1,\)\).*a tuple of exception classes"),
    ],
)
def test_a_policy_out_of_range_is_refused_where_it_is_written(options, message):
    """The error names the option, its value and what is allowed."""
    with pytest.raises(DeclarationError, match=message):
        Retry(**options)


def test_retries_count_the_attempts_after_the_first():
    """Five retries are six attempts; none is one attempt."""
    assert 6 == as_retry(5).max_attempts
    assert 1 == as_retry(0).max_attempts
    assert ATTEMPTS_MAX == as_retry(ATTEMPTS_MAX - 1).max_attempts
    assert as_retry(None) is None
