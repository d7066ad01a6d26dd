"""Start workflow: store its steps, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import InvalidArgument, WrongState
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues import workflows
from django_pgqueue.queues.fair import hint_of
from django_pgqueue.queues.workflows import NewStep
from django_pgqueue.tasks.database import queue_connection
from django_pgqueue.tasks.payload import check_text
from django_pgqueue.tasks.plan import Ends, Plan
from django_pgqueue.tasks.workflow_result import WorkflowResult

# Each settle locks the rows of all of them; sql/start_workflow.sql counts them.
BATCHES_AROUND_MAX = 10


def start(
    planned: tuple[Plan, Ends],
    *,
    name: str,
    key: str | None,
    kind: str = "canvas",
    is_open: bool = False,
    deadline: Duration | None = None,
    version: str | None = None,
    parent: int | None = None,
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
        version: By which declaration it is made.
        parent: The batch that it is in.

    Raises:
        InvalidArgument: The key is no text of 1 to 255 characters, or that of a batch
            that is not in *parent*; or there are more than ten batches around it.
        WrongState: *parent* has ended, or was cancelled.
        WrongDatabase: A transaction is open on another alias.
    """
    if key is not None:
        check_text(name, "key", key)
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
            version=version,
            parent=parent,
        )
    if started.workflow is None:
        assert parent is not None
        _refuse(name, parent, started.refused)
    result = WorkflowResult(started.workflow, created=bool(started.is_new))
    if started.is_new:
        _announce(connection, plan.steps, started.first_id, settings)
    elif parent is not None and result._read().parent_id != parent:
        problem = (
            f"is that of batch {result.id}, which is not in batch {parent}; take "
            f"another key, or another name"
        )
        raise InvalidArgument(task=name, path="key", problem=problem)
    return result


def _refuse(name: str, parent: int, why: str | None) -> NoReturn:
    """Raise the error of a batch that cannot be in another one."""
    if why == "deep":
        problem = f"is in more than {BATCHES_AROUND_MAX} others; nest them less deeply"
        raise InvalidArgument(task=name, path="batch", problem=problem)
    status = WorkflowResult(parent).status
    raise WrongState(
        parent,
        status,
        "no batch can be stored in it any more. Its own jobs can store some while they "
        "run; others before close().",
        what="Workflow",
    )


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
