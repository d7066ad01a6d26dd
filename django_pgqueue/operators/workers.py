"""Workers: what a worker process does, in words, and the jobs that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from django_pgqueue.conf import get_settings
from django_pgqueue.models import Worker
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.workers import Leased, leased
from django_pgqueue.worker.serving import is_alive

# What starts a worker of all queues; of one, with its name.
START = "python manage.py pgqueue_worker"
START_FOR = f"{START} --queues "

# Jobs that are shown of one worker.
HELD_JOBS_MAX = 50

# A task may extend its lease: those that end sooner than this are found.
EXTENDED_LEASE = timedelta(hours=1)


def latest(most: int) -> list[Any]:
    """Return at most so many workers with the clock, those heard of last first."""
    rows = Worker.objects.using(get_settings().database).annotate(clock=Now())
    return list(rows.order_by("-heartbeat_at")[:most])


def silent_seconds(worker: Any) -> float:
    """Return how long ago a worker was heard of, by its row with the clock."""
    seconds: float = (worker.clock - worker.heartbeat_at).total_seconds()
    return seconds


def is_silent(worker: Any) -> bool:
    """Whether a worker was not heard of lately."""
    return not is_alive(silent_seconds(worker))


def leads(worker: Any) -> bool:
    """Whether a worker is alive and does the chores of all."""
    until = worker.leader_until
    return not is_silent(worker) and until is not None and until > worker.clock


def state_word(worker: Any) -> str:
    """Return whether a worker was heard of lately, and whether it leads."""
    if is_silent(worker):
        return "silent"
    return "alive, leads" if leads(worker) else "alive"


def queues(worker: Any) -> str:
    """Return which queues a worker takes jobs from: "mail, slow"."""
    names = worker.queues if isinstance(worker.queues, list) else []
    return ", ".join(map(str, names)) or "all"


def slots(worker: Any) -> str:
    """Return how many jobs a worker runs at once: "8 + 100 async"."""
    if not worker.async_slots:
        return str(worker.threads)
    return f"{worker.threads} + {worker.async_slots} async"


def held(cursor: Cursor, names: Sequence[str], *, limit: int) -> list[Leased]:
    """
    Return jobs that workers hold, the ones held longest first.

    Args:
        cursor: An open cursor.
        names: Of the workers.
        limit: How many at most, of all of them together.
    """
    lease = timedelta(seconds=get_settings().lease_seconds)
    lease = max(lease, EXTENDED_LEASE)
    return leased(cursor, workers=names, lease=lease, limit=limit)
