"""Perform async: whatever an async task does is an outcome of this one job."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from django_pgqueue import Reject, TaskTimeout, task
from django_pgqueue.conf import parse
from django_pgqueue.tasks import perform as module
from django_pgqueue.tasks.context import JobControl
from django_pgqueue.tasks.outcome import (
    GaveUp,
    Performed,
    Retried,
    Succeeded,
)
from django_pgqueue.tasks.perform import perform_async
from django_pgqueue.tasks.prepare import prepare
from django_pgqueue.tasks.raised import Snooze
from tests.tasks.test_perform import claimed

SETTINGS = parse({})


def run(job, *, settings=SETTINGS, **options):
    prepared = prepare(job, settings)
    assert not isinstance(prepared, Performed)
    clock = itertools.count().__next__
    with patch.object(module, "time", SimpleNamespace(monotonic=clock)):
        return asyncio.run(
            perform_async(job, prepared, settings, installation="uuid", **options)
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


def test_a_cancel_that_was_asked_for_means_what_was_asked(performed):
    """The CancelledError is its cause, so that the traceback says where it waited."""

    async def waits():
        raise asyncio.CancelledError

    ended = performed(waits, job={"max_attempts": 1}, why_cancelled=TaskTimeout)

    assert GaveUp("timeout") == ended.outcome
    assert isinstance(ended.error, TaskTimeout)
    assert isinstance(ended.error.__cause__, asyncio.CancelledError)
    assert "ran longer than its timeout" in str(ended.error)


def test_ack_first_is_said_before_the_task_is_called(performed):
    """In a thread: it waits for the database."""
    seen = []

    class Control(JobControl):
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
