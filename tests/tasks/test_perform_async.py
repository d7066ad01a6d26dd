"""Perform async: whatever an async task does is an outcome of this one job."""

from __future__ import annotations

import asyncio
import itertools
import json
from datetime import timedelta

import pytest

from django_pgqueue import Reject, TaskTimeout, task
from django_pgqueue.conf import parse
from django_pgqueue.tasks.context import Inline
from django_pgqueue.tasks.outcome import (
    Cancelled,
    GaveUp,
    Performed,
    Retried,
    Succeeded,
)
from django_pgqueue.tasks.perform import perform, perform_async
from django_pgqueue.tasks.prepare import prepare
from django_pgqueue.tasks.raised import Snooze
from django_pgqueue.tasks.settlement import error_entry
from tests.tasks.test_perform import claimed

SETTINGS = parse({})

LATER = Retried(timedelta(seconds=5), gives_attempt_back=True, is_failure=False)


def run(job, *, settings=SETTINGS, **options):
    prepared = prepare(job, settings)
    assert not isinstance(prepared, Performed)
    clock = itertools.count().__next__
    return asyncio.run(
        perform_async(
            job, prepared, settings, installation="uuid", clock=clock, **options
        )
    )


@pytest.fixture
def performed(declared):
    """A function that runs *function* as an async task and says what came of it."""

    def performed(function, *, job=None, control=None, why_cancelled=None, **options):
        task(name="async_task", **options)(function)
        asked = {} if why_cancelled is None else {"why_cancelled": why_cancelled}
        return run(claimed("async_task", **(job or {})), control=control, **asked)

    return performed


def test_what_it_returns_is_the_result(performed):
    """As JSON text, with the seconds that it ran."""

    async def add(left, right):
        await asyncio.sleep(0)
        return left + right

    ended = performed(add, job={"args": "[1, 2]"})

    assert (Succeeded(), "3", 1) == (ended.outcome, ended.result, ended.ran_seconds)
    assert ended.settled is None


@pytest.mark.parametrize(
    "error,outcome",
    [
        (ValueError("bad"), GaveUp("exhausted")),
        (SystemExit(1), GaveUp("exhausted")),
        (KeyboardInterrupt(), GaveUp("exhausted")),
        (asyncio.CancelledError(), GaveUp("exhausted")),
        (TaskTimeout("own"), GaveUp("timeout")),
        (Reject("never"), GaveUp("rejected")),
        (
            Snooze(5),
            Retried(Snooze(5).delay, gives_attempt_back=True, is_failure=False),
        ),
    ],
)
def test_whatever_it_raises_is_an_outcome(performed, error, outcome):
    """A CancelledError that nobody asked for is a failure like any other."""

    async def fails():
        raise error

    ended = performed(fails, job={"max_attempts": 1})

    assert (outcome, error) == (ended.outcome, ended.error)


def test_a_traceback_begins_in_the_task(performed):
    """Our own frames say nothing about it."""

    async def fails():
        raise ValueError("here")

    job = claimed("async_task")
    entry = json.loads(error_entry(job, performed(fails), worker="w", waited=0.0))

    assert "in fails" in entry["traceback"].splitlines()[1]


def test_a_cancel_that_was_asked_for_means_what_was_asked(performed):
    """The CancelledError is its cause, so that the traceback says where it waited."""

    async def waits():
        raise asyncio.CancelledError

    ended = performed(waits, job={"max_attempts": 1}, why_cancelled=TaskTimeout)

    assert GaveUp("timeout") == ended.outcome
    assert isinstance(ended.error, TaskTimeout)
    assert isinstance(ended.error.__cause__, asyncio.CancelledError)
    assert "ran longer than its timeout" in str(ended.error)


def test_another_error_after_a_cancel_stays_what_it_is(performed):
    """A task that fails while it tidies up has failed."""

    async def fails():
        raise ValueError("tidying up")

    ended = performed(fails, job={"max_attempts": 1}, why_cancelled=TaskTimeout)

    assert GaveUp("exhausted") == ended.outcome


def test_any_failure_after_a_request_to_stop_is_a_cancel(performed):
    """As for sync tasks; one that returns has done its work."""

    async def ends(fails):
        if fails:
            raise asyncio.CancelledError
        return 1

    control = Inline()
    control.is_cancelled = True

    outcomes = {
        fails: performed(ends, job={"args": f"[{fails}]"}, control=control).outcome
        for fails in ("true", "false")
    }
    assert {"true": Cancelled(), "false": Succeeded()} == outcomes


def test_a_context_is_passed_and_its_words_count(performed):
    """ack_policy="manual", with the awaiting forms."""

    async def rejects(ctx):
        await ctx.areject("no more")
        return ctx.idempotency_key

    ended = performed(rejects, takes_context=True, ack_policy="manual")

    assert GaveUp("rejected") == ended.outcome


def test_manual_without_a_word_is_a_failure(performed):
    """Nobody would settle the job."""

    async def silent(ctx):
        return None

    ended = performed(silent, takes_context=True, ack_policy="manual")

    assert isinstance(ended.outcome, Retried)
    assert "without a word" in str(ended.error)


def test_ack_first_is_said_before_the_task_is_called(performed):
    """In a thread: it waits for the database."""
    seen = []

    class Control(Inline):
        def say(self, error):
            with pytest.raises(RuntimeError, match="no running event loop"):
                asyncio.get_running_loop()
            seen.append("acked")
            super().say(error)
            self.is_settled = True

    async def once():
        seen.append("called")
        raise ValueError("too late")

    ended = performed(once, control=Control(), ack_policy="first")

    assert ["acked", "called"] == seen
    assert (Succeeded(), True) == (ended.outcome, ended.settled)
    assert isinstance(ended.error, ValueError)


def test_middleware_stands_around_it(performed):
    """Async, or a plain function that returns what goes on; the first is outermost."""
    seen = []

    async def outer(context, call_next):
        seen.append("outer")
        value = await call_next()
        seen.append("outer again")
        return value + 1

    def inner(context, call_next):
        seen.append("inner")
        return call_next()

    async def one():
        seen.append("task")
        return 1

    ended = performed(one, middleware=[outer, inner])

    assert "2" == ended.result
    assert ["outer", "inner", "task", "outer again"] == seen


def test_a_middleware_that_returns_no_awaitable_is_named_as_the_fault(performed):
    """The task was not called, so it did not succeed."""

    def forgets(context, call_next):
        return 5

    async def one():
        return 1

    ended = performed(one, middleware=[forgets])

    assert isinstance(ended.error, TypeError)
    assert "a middleware around an async task returned int" in str(ended.error)


def test_without_a_loop_perform_runs_it_too(declared):
    """In testing.drain(), say, where there is no event loop."""

    async def add(left, right):
        return left + right

    task(name="async_task")(add)
    job = claimed("async_task", args="[1, 2]")
    ended = perform(job, prepare(job, SETTINGS), SETTINGS, installation="uuid")

    assert (Succeeded(), "3") == (ended.outcome, ended.result)
