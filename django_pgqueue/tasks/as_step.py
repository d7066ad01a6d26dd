"""As step: which options a step of a workflow may have, and whose result is stored."""

from __future__ import annotations

from collections.abc import Collection

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.options.lanes import Lane
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.options import CallOptions
from django_pgqueue.tasks.unique import Rule


def check(
    task: DeclaredTask,
    options: CallOptions,
    rule: Rule | None,
    lane: Lane | None,
    filled: Collection[int | str],
) -> None:
    """
    Raise InvalidOption where a call cannot be a step.

    A step is one job, which exists once its turn has come: not a call that may stand
    for another one, nor one of many that run together.

    Args:
        task: Whose call it is.
        options: What the call says.
        rule: What becomes of a second call.
        lane: Where its job waits for others.
        filled: Its arguments that are results of other steps, by place or name.
    """
    problem = None
    if rule is not None:
        problem = (
            "unique, debounce and throttle let one call stand for another, and a step "
            "is a job of its own: say using(unique=False) for it"
        )
    elif task.options.accumulate is not None:
        problem = "accumulate=… runs many calls as one, and a step is a job of its own"
    elif options.spread is not None:
        problem = "spread() says when jobs of many calls run; say run_after for a step"
    elif filled and lane is not None:
        name_at = task.parameters.name_at
        names = {name_at(to) if isinstance(to, int) else to for to in filled}
        if lane.function is not None or not names.isdisjoint(lane.by):
            problem = (
                "its lane is chosen by an argument that is known only when the step "
                "before it has ended: give it that argument, or another lane"
            )
    if problem is not None:
        raise InvalidOption(f"{task.name} cannot be a step of a workflow: {problem}.")


def why_without_result(
    task: DeclaredTask, queue: str, settings: Settings
) -> str | None:
    """Return why a task's result is not stored; None: it is."""
    options = task.resolve(queue, settings)
    if not options.archive:
        return "it is declared with archive=False"
    if options.ack_policy == "first":
        return 'it is declared with ack_policy="first", and ends before it runs'
    return None
