"""Start workflow: store its steps, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import InvalidArgument, shown
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues import workflows
from django_pgqueue.queues.fair import hint_of
from django_pgqueue.queues.workflows import NewStep
from django_pgqueue.tasks.open_transaction import queue_connection
from django_pgqueue.tasks.payload import encode_at
from django_pgqueue.tasks.plan import KEY_LENGTH_MAX, Ends, Plan
from django_pgqueue.tasks.workflow_result import WorkflowResult


def start(
    planned: tuple[Plan, Ends],
    *,
    name: str,
    key: str | None,
    kind: str = "canvas",
    is_open: bool = False,
    deadline: Duration | None = None,
) -> WorkflowResult:
    """
    Store a workflow, and the jobs of those steps that wait for none.

    Args:
        planned: Its steps, and those that it ends with.
        name: Of the workflow.
        key: Of several with the same name and key only the first is stored. None: each.
        kind: "canvas", "batch", "flow" or "saga".
        is_open: Whether steps may be added later.
        deadline: It is cancelled if it has not ended after this duration.

    Raises:
        InvalidArgument: The key is no text of 1 to 255 characters.
        WrongDatabase: A transaction is open on another alias.
    """
    if key is not None and (
        not isinstance(key, str) or not 1 <= len(key) <= KEY_LENGTH_MAX
    ):
        problem = f"is {shown(key)}; it must be a text of 1 to {KEY_LENGTH_MAX}"
        raise InvalidArgument(task=name, path="key", problem=problem)
    encode_at(name, "key", key)
    plan, ends = planned
    settings = plan.settings
    connection = queue_connection(name, settings.database)
    tracing: Any = nullcontext()
    if settings.trace:
        from django_pgqueue.tasks.tracing import sending

        tracing = sending("enqueue", name)
    with tracing, connection.cursor() as cursor:
        started = workflows.start(
            cursor,
            name=name,
            key=key,
            steps=list(_carried(plan.steps, settings)),
            ends=ends.places,
            is_list=ends.is_list,
            kind=kind,
            is_open=is_open,
            deadline=None if deadline is None else _checked_deadline(name, deadline),
        )
    if started.is_new:
        _announce(connection, plan.steps, started.first_id, settings)
    return WorkflowResult(started.workflow, created=started.is_new)


def add(workflow: int, plan: Plan, *, name: str) -> bool:
    """Add steps to a batch, in the caller's transaction; False: it has ended."""
    settings = plan.settings
    connection = queue_connection(name, settings.database)
    with connection.cursor() as cursor:
        first = workflows.add(cursor, workflow, list(_carried(plan.steps, settings)))
    if first is not None:
        _announce(connection, plan.steps, first, settings)
    return first is not None


def _checked_deadline(name: str, deadline: Duration) -> timedelta:
    try:
        return as_timedelta(deadline, name="deadline", zero=False)
    except ValueError as error:
        raise InvalidArgument(task=name, path="deadline", problem=str(error)) from None


def _carried(steps: list[NewStep], settings: Settings) -> Iterator[NewStep]:
    """Yield the steps with the context of the current span, where there is one."""
    if not settings.trace:
        yield from steps
        return
    from django_pgqueue.tasks.tracing import carry

    for step in steps:
        if (at := step.placement) is None:
            yield step
        else:
            yield replace(step, placement=replace(at, headers=carry(at.headers)))


def _announce(
    connection: Any, steps: list[NewStep], first_id: int | None, settings: Settings
) -> None:
    """Wake workers after the commit, for the steps that have started."""
    first = {
        place
        for place, step in enumerate(steps)
        if not step.after and step.kind == "step"
    }
    if any(steps[place].placement is None for place in first):
        # What gathers nothing has let others start.
        first = set(range(len(steps)))
    hints = {
        at.queue if at.lane is None else hint_of(at.queue, at.lane_policy)
        for place in first
        if (at := steps[place].placement) is not None
    }
    for hint in sorted(hints):
        wake_after_commit(connection, hint)
    if settings.mode == "immediate" and first_id is not None:
        from django_pgqueue.tasks.inline import run_steps

        run_steps(first_id)
