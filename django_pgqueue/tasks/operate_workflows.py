"""What operators do with workflows: cancel, retry, restart, and let a saga go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django_pgqueue.exceptions import WorkflowNotFound, WrongState
from django_pgqueue.queues import workflows
from django_pgqueue.tasks import database, operate
from django_pgqueue.tasks.workflow_result import WorkflowResult

# Steps that are retried at a time: they stay locked until it is done.
RETRIED_STEPS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Retried:
    """
    What became of the dead steps of one workflow.

    Attributes:
        done: The ids of those whose jobs are in their queues again.
        left: Those that have no dead letter any more, or none that can be redriven.
        is_more: There are more than were tried.
    """

    done: Sequence[int]
    left: Sequence[int]
    is_more: bool


def cancel(workflow: int, *, by: str = "") -> str | None:
    """
    Cancel what has not started of a workflow, and ask what runs of it to stop.

    Args:
        workflow: Its id.
        by: Who cancels, for the errors of its jobs; at most 150 characters.

    Returns:
        The state that it has now; None: it had ended, or was asked before.

    Raises:
        InvalidOption: *by* is too long, or no text that can be stored.
        WorkflowNotFound: It was never committed, or its retention has passed.
    """
    result = WorkflowResult(workflow)
    return result.status if result.cancel(by=by) else None


def retry(workflow: int, *, limit: int = RETRIED_STEPS_MAX) -> Retried:
    """
    Redrive the dead letters of a workflow's steps: with all attempts, it runs again.

    What its failing has started, by on_error, is left as it is. Of a saga, its dead
    compensation is tried again: it does not go on from a dead step.

    Args:
        workflow: Its id.
        limit: So many steps at most; call it again for more.

    Raises:
        WorkflowNotFound: It was never committed, or its retention has passed.
    """
    with database.transaction() as (_connection, cursor):
        row = workflows.find(cursor, [workflow]).get(workflow)
        if row is None:
            raise WorkflowNotFound(workflow)
        if row.kind == "saga":
            stuck = WorkflowResult(workflow).resolve(again=True)
            return Retried(stuck, [], is_more=False)
        found = workflows.dead(cursor, workflow, limit=limit + 1)
        tried = found[:limit]
        done = operate.redrive(tried)
    left = sorted({*tried} - {*done})
    return Retried(done, left, len(found) > limit)


def restart(workflow: int, *, step: int | None = None) -> int | None:
    """
    Start a workflow that has ended anew, with the results that it has.

    Args:
        workflow: Its id.
        step: The id of a step that runs again, with all that comes after it. None: only
            what has not succeeded.

    Returns:
        The id of the new one; None: it has not ended, or is a saga or a batch.

    Raises:
        LookupError: It has no such step.
        WorkflowNotFound: It was never committed, or its retention has passed.
    """
    try:
        return WorkflowResult(workflow).restart(step).id
    except WrongState:
        return None


def resolve(workflow: int, *, by: str = "", reason: str = "") -> list[int]:
    """
    Let a saga go on whose dead compensation was done by hand; it is set aside.

    Args:
        workflow: Its id.
        by: Who sets it aside; at most 150 characters.
        reason: Why; at most 2,000 characters. Both are added to its errors.

    Returns:
        The ids of the compensations that held it up; none: it waits for nobody.

    Raises:
        InvalidOption: *by* or *reason* is too long, or no text that can be stored.
        WorkflowNotFound: It was never committed, or its retention has passed.
    """
    return WorkflowResult(workflow).resolve(again=False, by=by, reason=reason)
