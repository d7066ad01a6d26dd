"""What operators do with workflows: cancel one, and retry what is dead in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_pgqueue.queues import workflows
from django_pgqueue.tasks import database, operate

if TYPE_CHECKING:
    from collections.abc import Sequence

# Steps of one workflow that are retried at a time: they stay locked until it is done.
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
    from django_pgqueue.tasks.workflow_result import WorkflowResult

    result = WorkflowResult(workflow)
    return result.status if result.cancel(by=by) else None


def retry(workflow: int, *, limit: int = RETRIED_STEPS_MAX) -> Retried:
    """
    Redrive the dead letters of a workflow's steps: with all attempts, it runs again.

    What its failing has started, by on_error, is left as it is. Of a saga, these are
    the compensations that are dead: it does not go on from a dead step.

    Args:
        workflow: Its id.
        limit: So many steps at most; call it again for more.
    """
    with database.transaction() as (_connection, cursor):
        found = workflows.dead(cursor, workflow, limit=limit + 1)
        tried = found[:limit]
        done = operate.redrive(tried)
    left = sorted({*tried} - {*done})
    return Retried(done, left, len(found) > limit)
