"""Serving: which queues living workers serve, as their rows say."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import doctor
from django_pgqueue.worker.queue_plan import QueuePlan, read_plan

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
