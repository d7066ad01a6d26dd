"""Start workflow: store its steps, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import InvalidArgument, shown
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues import workflows
from django_pgqueue.queues.fair import hint_of
from django_pgqueue.queues.workflows import NewStep, Started
from django_pgqueue.tasks.canvas import KEY_LENGTH_MAX, Ends, Plan
from django_pgqueue.tasks.open_transaction import queue_connection
from django_pgqueue.tasks.workflow_result import WorkflowResult


def start(
    planned: tuple[Plan, Ends], *, name: str, key: str | None, kind: str = "canvas"
) -> WorkflowResult:
    """
    Store a workflow, and the jobs of those steps that wait for none.

    Args:
        planned: Its steps, and those that it ends with.
        name: Of the workflow.
        key: Of several with the same name and key only the first is stored. None: each.
        kind: "canvas", "flow" or "saga".

    Raises:
        InvalidArgument: The key is no text of 1 to 255 characters.
        WrongDatabase: A transaction is open on another alias.
    """
    if key is not None and (
        not isinstance(key, str) or not 1 <= len(key) <= KEY_LENGTH_MAX
    ):
        problem = f"is {shown(key)}; it must be a text of 1 to {KEY_LENGTH_MAX}"
        raise InvalidArgument(task=name, path="key", problem=problem)
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
        )
    if started.is_new:
        _announce(connection, plan.steps, started, settings)
    return WorkflowResult(started.workflow, created=started.is_new)


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
    connection: Any, steps: list[NewStep], started: Started, settings: Settings
) -> None:
    """Wake workers after the commit, for the steps that have started."""
    first = {place for place, step in enumerate(steps) if not step.after}
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
    if settings.mode == "immediate" and started.first_id is not None:
        from django_pgqueue.tasks.inline import run_steps

        run_steps(started.first_id)
