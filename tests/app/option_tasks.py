"""
A task for each option of @task, plain and async; each tells its signals in the ledger.

The same calls are then run in every way that there is, and must leave the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import FunctionType
from typing import Any

from django_pgqueue import (
    Accumulate,
    Breaker,
    Call,
    Cancel,
    JobContext,
    Limit,
    Rate,
    Reject,
    Retry,
    Snooze,
    Unique,
    signals,
    task,
)
from tests.app.tasks import Unlucky
from tests.harness import ledger

Case = tuple[dict[str, Any], str]


def _end(how: str) -> str:
    """End as the last word says."""
    last = how.rsplit(", ", maxsplit=1)[-1]
    if last == "fail":
        raise Unlucky("as told")
    if last == "cancel":
        raise Cancel
    if last == "snooze":
        raise Snooze("1h")
    if last == "reject":
        raise Reject("no use")
    return how


def plain(how: str = "") -> str:
    """Do what a case says."""
    return _end(how)


async def plain_async(how: str = "") -> str:
    """Do the same in a coroutine."""
    return _end(how)


def with_context(ctx: JobContext, how: str = "") -> str:
    """Say something to the context first."""
    if "progress" in how:
        ctx.progress(1, total=2, note="half")
    if "ack" in how:
        ctx.ack()
    return _end(how)


async def with_context_async(ctx: JobContext, how: str = "") -> str:
    """Do the same in a coroutine."""
    if "progress" in how:
        ctx.progress(1, total=2, note="half")
    if "ack" in how:
        await ctx.aack()
    return _end(how)


def of_calls(calls: list[Call]) -> str:
    """Take all calls of a run; here, one."""
    return _end(*[call.kwargs["how"] for call in calls])


async def of_calls_async(calls: list[Call]) -> str:
    """Do the same in a coroutine."""
    return _end(*[call.kwargs["how"] for call in calls])


def in_the_middle(context: JobContext, call_next: Callable[[], Any]) -> Any:
    """Change what a task returns."""
    return ["middle", call_next()]


async def in_the_middle_async(context: JobContext, call_next: Any) -> Any:
    """Change what an async task returns."""
    return ["middle", await call_next()]


ONE = Accumulate(size=1, within="1s")
# Later than any of these tests ends.
LATER = Retry(max_attempts=3, base="1h", jitter="none")

# What @task is told, and what the call says. {} stands for the name of the function.
CASES: dict[str, Case] = {
    "nothing": ({}, "go"),
    "cancels": ({}, "cancel"),
    "snoozes": ({}, "snooze"),
    "takes_context": ({"takes_context": True}, "progress"),
    "takes_context, retries": (
        {"takes_context": True, "retries": LATER},
        "progress, fail",
    ),
    "queue": ({"queue": "other"}, "go"),
    "priority": ({"priority": 7}, "go"),
    "retries, fails": ({"retries": 0}, "fail"),
    "retries": ({"retries": LATER}, "fail"),
    "timeout": ({"timeout": "60s"}, "go"),
    "check_types": ({"check_types": True}, "go"),
    "settle": ({"settle": "batched"}, "go"),
    "ack_policy first": ({"ack_policy": "first"}, "go"),
    "ack_policy first, fails": ({"ack_policy": "first"}, "fail"),
    "ack_policy reject": ({"ack_policy": "reject_on_error"}, "fail"),
    "ack_policy manual": ({"ack_policy": "manual", "takes_context": True}, "ack"),
    "ack_policy manual, never": (
        {"ack_policy": "manual", "takes_context": True, "retries": LATER},
        "progress",
    ),
    "group": ({"group": "how"}, "go"),
    "limit": ({"limit": Limit(3)}, "go"),
    "rate": ({"rate": Rate("100/s")}, "go"),
    "fair_by": ({"fair_by": "how"}, "go"),
    "breaker": ({"breaker": Breaker(1.0, of=100)}, "go"),
    "archive": ({"archive": False}, "go"),
    "archive, fails": ({"archive": False, "retries": 0}, "fail"),
    "archive, manual": (
        {"archive": False, "ack_policy": "manual", "takes_context": True},
        "ack",
    ),
    "archive, accumulate": ({"archive": False, "accumulate": ONE}, "go"),
    "atomic": ({"atomic": True}, "go"),
    "atomic, fails": ({"atomic": True, "retries": 0}, "fail"),
    "middleware": ({"middleware": [in_the_middle]}, "go"),
    "tags": ({"tags": ["a", "b"]}, "go"),
    "unique": ({"unique": Unique(by="how")}, "go"),
    "debounce, max_wait, by": (
        {"debounce": "1ms", "max_wait": "1s", "by": "how"},
        "go",
    ),
    "throttle": ({"throttle": "9/h", "by": ()}, "go"),
    "accumulate": ({"accumulate": ONE}, "go"),
    "name": ({"name": "renamed {}"}, "go"),
    "aliases": ({"aliases": ["once {}"]}, "go"),
}

# Declared in module, as a project would: by case, plain and async.
PLAIN: dict[str, Any] = {}
ASYNC: dict[str, Any] = {}


def _declare(case: str, told: dict[str, Any], *, is_async: bool) -> Any:
    """Declare a task of its own for a case."""
    kinds = {
        "takes_context": (with_context, with_context_async),
        "accumulate": (of_calls, of_calls_async),
    }
    key = next((key for key in kinds if key in told), None)
    body = kinds.get(key or "", (plain, plain_async))[is_async]
    name = f"{case}{' async' if is_async else ''}"
    made = FunctionType(body.__code__, globals(), name, body.__defaults__)
    made.__qualname__, made.__doc__ = name, body.__doc__
    made.__annotations__ = body.__annotations__
    options = {**told}
    for option in ("name", "aliases"):
        if option in told:
            said = told[option]
            options[option] = (
                said.format(name)
                if isinstance(said, str)
                else [one.format(name) for one in said]
            )
    if is_async and "middleware" in told:
        options["middleware"] = [in_the_middle_async]
    return task(**options)(made)


for _case, (_told, _how) in CASES.items():
    PLAIN[_case] = _declare(_case, _told, is_async=False)
    if not _told.get("atomic"):
        ASYNC[_case] = _declare(_case, _told, is_async=True)


# Signals ------------------------------------------------------------------------------

ENDS = {
    "succeeded": signals.job_succeeded,
    "retried": signals.job_retried,
    "dead": signals.job_dead,
    "cancelled": signals.job_cancelled,
    "expired": signals.job_expired,
}


def _note(event: str) -> Callable[..., None]:
    """Return a receiver that writes what it hears."""

    def receiver(sender: Any, **fields: Any) -> None:
        if ledger.PATH not in os.environ:
            return
        job, error = fields.pop("job", None), fields.pop("error", None)
        fields = {
            name: round(value) if name == "delay_seconds" else value
            for name, value in fields.items()
            if name not in ("signal", "ran_seconds", "job_id")
        }
        note = {
            **{name: fields[name] for name in sorted(fields)},
            "error": None if error is None else f"{error.__class__.__name__}: {error}",
            "sender": sender in (*PLAIN.values(), *ASYNC.values()),
        }
        ledger.write(event, job.id, job.attempt, note)

    return receiver


RECEIVERS = [_note("started"), *map(_note, ENDS)]
for _signal, _receiver in zip(
    (signals.job_started, *ENDS.values()), RECEIVERS, strict=True
):
    for _task in (*PLAIN.values(), *ASYNC.values()):
        _signal.connect(_receiver, sender=_task)
