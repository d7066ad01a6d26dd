"""
Serving: which queues living workers serve, and whether there is a queue of a name.

A queue comes into being with its first job. So a name that nothing has is either new,
which whoever gives it has to say, or a typo, which would wait for ever without a word.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from django.db import connections

from django_pgqueue.bounds import QUEUE_DEFAULT
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import did_you_mean
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import doctor
from django_pgqueue.queues.stats import all_names
from django_pgqueue.tasks.registry import declared_names, find_task
from django_pgqueue.topics.consume import declared as declared_groups
from django_pgqueue.worker.queue_plan import QueuePlan, read_plan

NUMBER = re.compile(r"[-_.]?\d+")


def unknown_queue(name: str) -> str | None:
    """Return that no queue has the *name*, and which one is near; None: one has."""
    known = _known()
    return (
        None if name in known else f"No queue is called {name!r}.{_near(name, known)}"
    )


def mistaken_queue(names: Sequence[str]) -> str | None:
    """
    Return which of *names* is no queue's, but looks like one's; None: none is.

    For a worker, whose queues may well have to wait for their first job. Names that
    differ by a number are a family, such as shard-1 and shard-2.
    """
    known = _known()
    for name in names:
        near = "" if name in known else _near(name, known)
        if near:
            return f"No queue is called {name!r}.{near}"
    return None


def _known() -> set[str]:
    """Return the queues that have a job, a row, a task, a group or a setting."""
    settings = get_settings()
    declared = [find_task(name).options.queue for name in declared_names()]
    declared += [group.queue for group in declared_groups()]
    with connections[settings.database].cursor() as cursor:
        stored = all_names(cursor)
    return {QUEUE_DEFAULT, *filter(None, declared), *settings.queues, *stored}


def _near(name: str, known: set[str]) -> str:
    family = NUMBER.sub("", name)
    others = [other for other in known if NUMBER.sub("", other) != family]
    return did_you_mean(name, sorted(others))


# A worker writes its heartbeat every 10 s.
SILENT_SECONDS_MAX = 60.0

# Workers looked at, those that were heard of last.
WORKERS_MAX = 1_000


def is_alive(silent_seconds: float) -> bool:
    """Whether a worker was heard of lately, and is not dead for all we know."""
    return silent_seconds <= SILENT_SECONDS_MAX


def plan_of(worker: doctor.Seen) -> QueuePlan:
    """Return what *worker* serves; all, where its row cannot be read here."""
    try:
        return read_plan(tuple(worker.queues))
    except (TypeError, ValueError):
        # Of a later version.
        return QueuePlan()


def plans_of(seen: Iterable[doctor.Seen]) -> set[QueuePlan]:
    """Return what those of *seen* serve that live."""
    return {plan_of(worker) for worker in seen if is_alive(worker.silent_seconds)}


def living_plans(cursor: Cursor) -> set[QueuePlan]:
    """Return what living workers serve."""
    return plans_of(doctor.workers_seen(cursor, limit=WORKERS_MAX))


def is_served(queue: str, plans: Collection[QueuePlan]) -> bool:
    """Whether one of *plans* serves *queue*."""
    return any(plan.serves(queue) for plan in plans)
