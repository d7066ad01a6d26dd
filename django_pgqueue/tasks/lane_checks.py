"""Lane checks: what a lane needs of the task, and what it does not go with."""

from __future__ import annotations

from django_pgqueue.exceptions import DeclarationError, did_you_mean, shown
from django_pgqueue.options.lanes import Lane
from django_pgqueue.tasks.parameters import Parameters


def check_names(lane: Lane, parameters: Parameters) -> None:
    """Raise DeclarationError unless the function takes what makes the key."""
    for name in lane.by:
        if not parameters.takes(name):
            known = list(parameters.named)
            raise DeclarationError(
                f"{lane.option}: {shown(name)} is no parameter of "
                f"{parameters.function_name}.{did_you_mean(name, known)} It takes "
                f"{', '.join(known) or 'none that has a name'}."
            )


def problem_of(lane: Lane, *, has_rule: bool, accumulates: bool) -> str | None:
    """Say what a lane contradicts; None: nothing."""
    if not (has_rule or accumulates):
        return None
    if accumulates:
        return (
            f"accumulate and {lane.option} contradict each other: calls of the one run "
            f"together, and those of the other wait for one another. Leave one out"
        )
    return (
        f"{lane.option} goes with neither unique, debounce nor throttle: a call that "
        f"stands for a job of its key would have to know what waits before it. Leave "
        f"one out, or give the tasks different names"
    )
