"""
Middleware: what stands around a task, and two that come with the package.

A middleware is called with the job's context and a function without arguments that
goes on; what it returns is the task's result. Around an async task it is either an
async def that awaits call_next(), or a plain function that returns its awaitable.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from django_pgqueue.bounds import ATTEMPTS_MAX
from django_pgqueue.exceptions import DeclarationError, LeaseLost, check_whole, shown
from django_pgqueue.options.checks import Middleware
from django_pgqueue.options.durations import Duration
from django_pgqueue.options.retry import Backoff, Retry
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.raised import Cancel, Reject, RetryLater, Snooze

# What a task says on purpose is no failure that a policy of ours may turn round, and
# neither is a job that is somebody else's by now.
WORDS = (Cancel, LeaseLost, Reject, Snooze)


def wrap(
    middleware: Sequence[Middleware], context: JobContext, call: Callable[[], Any]
) -> Callable[[], Any]:
    """
    Return *call* with *middleware* around it, the first one outermost.

    Args:
        middleware: Functions of (context, call_next).
        context: What each of them is given.
        call: Calls the task: returns its result, or for async its awaitable.
    """
    for item in reversed(middleware):
        call = functools.partial(item, context, call)
    return call


def check_call(middleware: Middleware) -> None:
    """Raise DeclarationError unless it can be called with (context, call_next)."""
    try:
        inspect.signature(middleware).bind(None, None)
    except TypeError:
        raise DeclarationError(
            f"middleware {shown(middleware)} must take two arguments: the job's "
            f"context, and a function that goes on."
        ) from None
    except ValueError:
        pass  # A built-in that does not tell its signature.


def with_limit(limit: int) -> Middleware:
    """
    Return a middleware that makes the n-th failed attempt a dead letter, "rejected".

    For a group of tasks that should give up earlier than their retries say.

    Args:
        limit: The attempt that is the last one, 1 being the first.

    Raises:
        DeclarationError: No whole number from 1 to 32,767.
    """
    check_whole("with_limit({})", limit, ATTEMPTS_MAX, DeclarationError)

    def reject(context: JobContext, error: Exception) -> None:
        if context.attempt >= limit:
            raise Reject(
                f"failed attempt {context.attempt} of {limit} by with_limit: "
                f"{shown(error)}"
            ) from error

    return _on_failure(reject)


def with_backoff(
    backoff: Backoff = "exponential",
    *,
    base: Duration = 5,
    cap: Duration = "1h",
    jitter: Literal["full", "equal", "none"] = "full",
) -> Middleware:
    """
    Return a middleware that makes a failure RetryLater, after its own back-off.

    It decides when the next attempt is, not whether there is one: attempts are
    counted as ever, and the task's ``on`` and ``never`` are not asked.

    Args:
        backoff: As in Retry.
        base: As in Retry.
        cap: As in Retry.
        jitter: As in Retry.

    Raises:
        DeclarationError: A value is out of its range.
    """
    policy = Retry(backoff=backoff, base=base, cap=cap, jitter=jitter)

    def retry_later(context: JobContext, error: Exception) -> None:
        # The last failure stays what it is, and so does the reason of its dead letter.
        if not isinstance(error, RetryLater) and not context.is_last_attempt:
            raise RetryLater(policy.delay(context.attempt, error)) from error

    return _on_failure(retry_later)


def _on_failure(react: Callable[[JobContext, Exception], None]) -> Middleware:
    """Return a middleware that lets *react* see a failure, and maybe replace it."""

    def middleware(context: JobContext, call_next: Callable[[], Any]) -> Any:
        try:
            value = call_next()
        except WORDS:
            raise
        except Exception as error:
            react(context, error)
            raise
        return awaited(context, value) if inspect.isawaitable(value) else value

    async def awaited(context: JobContext, value: Awaitable[Any]) -> Any:
        try:
            return await value
        except WORDS:
            raise
        except Exception as error:
            react(context, error)
            raise

    return middleware
