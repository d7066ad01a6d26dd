"""Middleware: what stands around a task."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from django_pgqueue import (
    Cancel,
    InvalidOption,
    LeaseLost,
    Reject,
    RetryLater,
    Snooze,
    task,
)
from django_pgqueue.conf import get_settings
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.middleware import with_backoff, with_limit, wrap

pytestmark = pytest.mark.usefixtures("declared")


def context(attempt=1, max_attempts=5):
    return JobContext(
        id=1,
        task="t",
        queue="q",
        attempt=attempt,
        max_attempts=max_attempts,
        idempotency_key="k",
    )


def noting(name, notes):
    def middleware(ctx, call_next):
        notes.append((name, ctx.attempt))
        value = call_next()
        notes.append(name)
        return [name, value]

    return middleware


async def around_async(ctx, call_next):
    """Await what goes on."""
    return ["async", await call_next()]


def around_any(ctx, call_next):
    """Return what goes on, awaitable or not."""
    return call_next()


def test_the_first_is_the_outermost():
    """Each sees the context, goes on, and may change the result."""
    notes = []
    call = wrap([noting("a", notes), noting("b", notes)], context(2), lambda: "done")

    assert ["a", ["b", "done"]] == call()
    assert [("a", 2), ("b", 2), "b", "a"] == notes


def test_around_an_async_task_both_kinds_may_stand():
    """One that awaits, and one that hands the awaitable on."""

    async def call():
        return "done"

    wrapped = wrap([around_any, around_async, with_limit(3)], context(), call)

    assert ["async", "done"] == asyncio.run(wrapped())


# Those of the package ----------------------------------------------------------------


def fails_with(error, *, is_async):
    """Return a call that fails, at once or when it is awaited."""

    def call():
        raise error

    async def acall():
        raise error

    return acall if is_async else call


def run(middleware, ctx, error, is_async):
    value = wrap([middleware], ctx, fails_with(error, is_async=is_async))()
    return asyncio.run(value)


both = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@both
def test_with_limit_rejects_at_the_given_attempt(is_async):
    """Before it, a failure is what it was; at it, a dead letter with its reason."""
    error = ValueError("bad luck")
    limited = with_limit(3)

    with pytest.raises(ValueError, match="bad luck"):
        run(limited, context(2), error, is_async)
    for attempt in (3, 4):
        with pytest.raises(
            Reject, match=rf"attempt {attempt} of 3 by with_limit: ValueError\('bad"
        ) as caught:
            run(limited, context(attempt), error, is_async)
        assert error is caught.value.__cause__


@both
@pytest.mark.parametrize(
    "word", [Cancel(), Reject("no"), Snooze(5), LeaseLost(1, 2)], ids=repr
)
@pytest.mark.parametrize("middleware", [with_limit(1), with_backoff()])
def test_what_a_task_says_on_purpose_is_no_failure(middleware, word, is_async):
    """It passes as it is."""
    with pytest.raises(type(word)) as caught:
        run(middleware, context(1), word, is_async)

    assert word is caught.value


@both
def test_with_backoff_says_when_the_next_attempt_is(is_async):
    """By its own policy, with the attempt that failed."""
    doubling = with_backoff(base=10, cap="1m", jitter="none")

    for attempt, seconds in [(1, 10), (2, 20), (4, 60)]:
        with pytest.raises(RetryLater) as caught:
            run(doubling, context(attempt), ValueError("x"), is_async)
        assert timedelta(seconds=seconds) == caught.value.delay


# Declared ----------------------------------------------------------------------------


def test_those_of_the_settings_stand_outside(settings):
    """All, then the queue, then the task."""
    one, two, three = (noting(name, []) for name in "abc")
    settings.PGQUEUE = {
        "DEFAULTS": {"middleware": [one]},
        "QUEUES": {"mail": {"middleware": [two]}},
    }

    @task(name="around", middleware=[three])
    def function():
        pass

    mail = function.resolve("mail", get_settings()).middleware
    other = function.resolve("other", get_settings()).middleware
    assert ((one, two, three), (one, three)) == (mail, other)


def test_an_async_one_of_the_settings_does_not_fit_a_plain_task(settings):
    """The error names both ways out."""
    settings.PGQUEUE = {"DEFAULTS": {"middleware": [around_async]}}

    @task(name="plain")
    def plain():
        pass

    @task(name="later")
    async def later():
        pass

    assert (around_async,) == later.resolve("x", get_settings()).middleware
    with pytest.raises(InvalidOption, match="write it with def, or declare the task"):
        plain.resolve("x", get_settings())
