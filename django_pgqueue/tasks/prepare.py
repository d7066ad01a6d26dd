"""
Prepare: whether a claimed job may run, and what its task is called with.

The beginning of every attempt, whoever makes it. Whatever the row holds that is wrong
ends here as an outcome of this one job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_pgqueue.bounds import PUBLISH_TASK
from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import InvalidArgument, UndecodablePayload
from django_pgqueue.log.message import Message
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.edit import EDITS
from django_pgqueue.tasks import payload, registry
from django_pgqueue.tasks.context import JobContext, JobControl
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.options import ResolvedOptions
from django_pgqueue.tasks.outcome import (
    Cancelled,
    Expired,
    GaveUp,
    Outcome,
    Performed,
    Retried,
    Succeeded,
    outcome_after,
)
from django_pgqueue.tasks.registry import unknown

PLANNED = "pgqueue.planned"
UNKNOWN_SINCE = "pgqueue.unknown_since"
DELIVERIES_BEFORE = "pgqueue.deliveries_before"

# A job of an undeclared task is looked at again after its age, within these limits:
# soon after it appears (a deploy takes seconds), seldom later. The share of the grace
# period bounds how many deliveries the wait takes, however long it is.
HOLD_SECONDS_MIN, HOLD_SECONDS_MAX = 5.0, 60.0
HOLD_SHARE = 1 / 30

# Headers that nothing can be wrong with: no number in there is too long for Python, and
# no list too deep. Most tasks do not see theirs, so they are read when somebody asks.
PLAIN_CHARACTERS_MAX = 200


@dataclass(slots=True)
class Prepared:
    """A job whose task is known and whose arguments were read."""

    task: DeclaredTask
    options: ResolvedOptions
    args: list[Any]
    kwargs: dict[str, Any]
    # As JSON text until somebody asks for them.
    _headers: str | dict[str, Any]
    # Those of the other calls of its run, of a task with accumulate.
    other_headers: Sequence[Mapping[str, Any]] = ()

    @property
    def headers(self) -> dict[str, Any]:
        """Those of the job."""
        if not isinstance(self._headers, str):
            return self._headers
        headers: dict[str, Any] = json.loads(self._headers)
        self._headers = headers
        return headers


def refuse(job: Claimed, settings: Settings) -> Performed | None:
    """Ask the policy before the attempt; None: the job may run."""
    before = 0
    if job.delivery > settings.deliveries_max:
        before = sum(_noted(job, name) for name in (DELIVERIES_BEFORE, PLANNED))
    refused = decide_before(
        job,
        deliveries_max=settings.deliveries_max,
        crashes_max=settings.crashes_max,
        deliveries_before=before,
    )
    return None if refused is None else Performed(refused)


def decide_before(
    job: Claimed, *, deliveries_max: int, crashes_max: int, deliveries_before: int = 0
) -> Outcome | None:
    """
    Ask the policy before the attempt: has this job had enough? None: run it.

    What ended every delivery so far without a settle would end this one too, so the
    job must not run to find out.

    Args:
        job: As it was claimed.
        deliveries_max: Deliveries that are no attempts (crashes, lapsed leases).
        crashes_max: Deliveries that ended without a settle.
        deliveries_before: Those that do not count: before the latest redrive, and
            those that ended as planned (snoozes, returns).
    """
    if job.cancel_requested:
        return Cancelled()
    if job.expired:
        return Expired()
    if job.crashes >= crashes_max:
        is_lapse = job.last_error == "lease_expired"
        return GaveUp("lease_expired" if is_lapse else "worker_lost")
    others = job.delivery - deliveries_before - job.attempt
    if job.attempt > job.max_attempts or others >= deliveries_max:
        return GaveUp("exhausted")
    return None


def prepare(job: Claimed, settings: Settings) -> Prepared | Performed:
    """
    Find the job's task and read its arguments; or say why it cannot run.

    Never raises for anything that a row can hold.
    """
    task = registry.tasks.get(job.task)
    if task is None:
        error = unknown(job.task)
        held = Performed(_held(job, settings), error)
        if UNKNOWN_SINCE not in job.headers:
            # Said once, not with every look.
            held.note = note_of(str(error), kind="unknown_task")
        return held
    try:
        options = task.resolve(job.queue, settings)
        # A message that is published later goes to its log as it is stored.
        fetches = job.task != PUBLISH_TASK
        args, kwargs = payload.decode(job.args, job.kwargs, fetches=fetches)
        headers: Any = job.headers
        if (
            len(headers) > PLAIN_CHARACTERS_MAX
            or payload.TAG in headers
            or headers[0] != "{"
        ):
            headers = payload.decode_value(headers)
    except UndecodablePayload as error:
        return Performed(GaveUp("undecodable"), error)
    except Exception as error:
        # A model instance is gone, which is final, or could not be fetched just now.
        options = task.resolve(job.queue, settings)
        return Performed(outcome_after(job, options, error), error)
    if task.receives:
        unwanted = _unwanted_message(task, job.queue, args)
        if unwanted is not None:
            performed = Performed(Succeeded(), note=note_of(unwanted, kind="unwanted"))
            performed.leaves_no_trace = not options.archive
            return performed
    if options.check_types:
        try:
            task.bind(args, kwargs)
            task.check_types(args, kwargs, settings)
        except InvalidArgument as error:
            return Performed(GaveUp("rejected"), error)
        except Exception as error:
            # The hints cannot be read, or pydantic is missing: a deploy may fix it.
            return Performed(outcome_after(job, options, error), error)
    return Prepared(task, options, args, kwargs, headers)


def context_of(
    job: Claimed, prepared: Prepared, installation: str, control: JobControl
) -> JobContext:
    """Return what the task sees of its job, and can say to it through *control*."""
    headers = prepared.headers
    key = f"{installation}-{job.id}"
    if EDITS in headers:
        # Other arguments are another piece of work to those who are told the key.
        key = f"{key}.{headers[EDITS]}"
    return JobContext(
        id=job.id,
        task=job.task,
        queue=job.queue,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        headers=headers,
        idempotency_key=key,
        is_atomic=prepared.task.options.atomic,
        tags=_tags(headers),
        ack_policy=prepared.options.ack_policy,
        control=control,
    )


def _noted(job: Claimed, name: str) -> int:
    """Return how many deliveries a header says not to count."""
    try:
        noted = json.loads(job.headers)[name]
    except (KeyError, TypeError, ValueError, RecursionError):
        return 0
    return noted if isinstance(noted, int) and 0 <= noted < job.delivery else 0


def _held(job: Claimed, settings: Settings) -> Outcome:
    grace = timedelta(seconds=settings.unknown_task_grace_seconds)
    since = None
    try:
        since = payload.READERS["datetime"](json.loads(job.headers)[UNKNOWN_SINCE])
        return decide_unknown(unknown_since=since, now=job.claimed_at, grace=grace)
    except (KeyError, TypeError, ValueError, RecursionError):
        return decide_unknown(unknown_since=None, now=job.claimed_at, grace=grace)


def decide_unknown(
    *, unknown_since: datetime | None, now: datetime, grace: timedelta
) -> Outcome:
    """
    Say what follows when no declared task has the job's name.

    A deploy may be under way: the job is held, burning no attempt, until the grace
    period since it was first seen is over.
    """
    age = timedelta(0) if unknown_since is None else now - unknown_since
    if age >= grace:
        return GaveUp("unknown_task")
    longest = max(HOLD_SECONDS_MAX, grace.total_seconds() * HOLD_SHARE)
    seconds = min(max(age.total_seconds(), HOLD_SECONDS_MIN), longest)
    return Retried(
        timedelta(seconds=seconds),
        gives_attempt_back=True,
        is_failure=False,
        unknown_task=True,
    )


def _tags(headers: Mapping[str, Any]) -> tuple[str, ...]:
    tags = headers.get("tags")
    # A row written by SQL may hold anything.
    return tuple(map(str, tags)) if isinstance(tags, list) else ()


def note_of(message: str, kind: str = "result") -> str:
    """Return an entry beside an outcome, as JSON."""
    return json.dumps({"kind": kind, "message": message})


def _unwanted_message(
    task: DeclaredTask, queue: str, args: Sequence[Any]
) -> str | None:
    """
    Say why a job's message is not one for its task; None: it is, or there is none.

    By the patterns that code declares for the queue, so that a job which an older and
    wider pattern has made, or somebody by hand, is acked. In another queue, as after a
    redrive to it, by those of all queues.
    """
    if len(args) != 1 or not isinstance(args[0], Message):
        return None
    name = args[0].name
    here = [pattern for at, pattern in task.receives if at == queue]
    patterns = here or [pattern for _, pattern in task.receives]
    if any(pattern.matches(name) for pattern in patterns):
        return None
    wanted = ", ".join(repr(pattern.text) for pattern in patterns)
    return f"Acked unread: it is called {name!r}, and {task.name} wants {wanted}."
