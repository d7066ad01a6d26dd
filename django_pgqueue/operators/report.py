"""
Report: capacity, objectives, unusual durations and costs, for admin and commands.

All of it is reckoned from what the pipeline job metrics has counted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from django.utils.translation import gettext as _

from django_pgqueue.conf import Settings
from django_pgqueue.operators.human import duration
from django_pgqueue.pipeline.capacity import Capacity, Need, capacity
from django_pgqueue.pipeline.objectives import Budget, budgets
from django_pgqueue.pipeline.queue_hours import hours
from django_pgqueue.postgres.cursor import Cursor

DAYS_DEFAULT, DAYS_MAX = 14, 400

# Of a queue that promises no wait.
WAIT_DEFAULT = timedelta(seconds=5)


class QueueCapacity(NamedTuple):
    """What a queue needs to hold a wait, in seconds."""

    queue: str
    wait: float
    capacity: Capacity


class QueueBudget(NamedTuple):
    """How a promise of a queue was kept."""

    queue: str
    budget: Budget


def capacities(
    cursor: Cursor,
    settings: Settings,
    *,
    days: int,
    queue: str = "",
    wait: timedelta | None = None,
) -> list[QueueCapacity]:
    """
    Return what queues need, those with the most work first.

    Args:
        cursor: An open cursor.
        settings: Which waits queues promise.
        days: How far back hours are looked at.
        queue: This one alone; "": all.
        wait: That is to be held; None: that of the queue's objective, or 5 s.
    """
    found = []
    for name, seen in hours(cursor, days=days, queue=queue).items():
        objective = settings.objectives.get(name)
        promised = wait or (objective and objective.wait) or WAIT_DEFAULT
        needed = capacity(seen, promised.total_seconds())
        if needed is not None:
            found.append(QueueCapacity(name, promised.total_seconds(), needed))
    return sorted(found, key=lambda each: -each.capacity.busiest.load)


def kept(
    cursor: Cursor, settings: Settings, *, days: int, queue: str = ""
) -> list[QueueBudget]:
    """Return how the promises of queues were kept; one without jobs has kept them."""
    seen = hours(cursor, days=days, queue=queue)
    return [
        QueueBudget(name, budget)
        for name, objective in sorted(settings.objectives.items())
        if queue in ("", name)
        for budget in budgets(
            seen.get(name, ()), wait=objective.wait, success=objective.success
        )
    ]


def arithmetic(need: Need, wait: float, when: Callable[[Need], str]) -> str:
    """Return how the threads of *need* were reckoned, in one sentence or two."""
    told = _(
        "%(when)s: %(started)s starts of %(run)s are %(work)s of work in an hour: "
        "%(load)s threads busy. With %(threads)s threads, %(late)s of the jobs wait "
        "longer than %(wait)s"
    ) % {
        "when": when(need),
        "started": f"{need.started:,}",
        "run": duration(need.run_seconds),
        "work": duration(need.started * need.run_seconds),
        "load": f"{need.load:.3g}",
        "threads": f"{need.threads:,}",
        "late": percent(need.late_share),
        "wait": duration(wait),
    }
    if need.threads == 1:
        return f"{told}."
    if need.late_share_before >= 1:
        return told + _("; with one fewer, work would only grow.")
    return told + _("; with one fewer, %(late)s.") % {
        "late": percent(need.late_share_before)
    }


def percent(share: float) -> str:
    """Return a share with two figures: 2.1%, 0.013%, 100%."""
    return f"{share * 100:.2g}%" if abs(share) < 0.995 else f"{share:.0%}"


def promise(budget: Budget, settings: Settings, queue: str) -> str:
    """Return what is promised, in words."""
    objective = settings.objectives[queue]
    if budget.name == "wait":
        assert objective.wait is not None
        return _("95%% start within %(wait)s, in hours with %(target)s of the jobs") % {
            "wait": duration(objective.wait.total_seconds()),
            "target": f"{budget.target * 100:g}%",
        }
    return _("%(target)s succeed") % {"target": f"{budget.target * 100:g}%"}
