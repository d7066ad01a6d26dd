"""Backlogs: a chore of the leader that bounds what waits for slow subscribers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from django_pgqueue import telemetry
from django_pgqueue.conf import Settings
from django_pgqueue.log import backlogs
from django_pgqueue.log.backlogs import Bounded
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues import depth
from django_pgqueue.queues.cancel import CANCEL_ROWS_MAX, cancel
from django_pgqueue.queues.claim import remember_queues
from django_pgqueue.queues.lanes import HINT
from django_pgqueue.tasks import registry


def chores(settings: Settings) -> list[Callable[[Link], float]]:
    """Return what counts the queues of these settings; nothing, if none has a limit."""
    limits = settings.depths_max
    return [Depths(limits)] if limits else []


class Depths:
    """Writes down how many jobs each queue with a limit holds."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._has_rows = False

    def __call__(self, link: Link) -> float:
        """Count; return how many seconds until the next time."""
        if not self._has_rows:
            with link.cursor() as cursor:
                remember_queues(cursor, [*self._limits])
            self._has_rows = True
        began = time.monotonic()
        with link.transaction(depth.COUNT_SECONDS_MAX, Plans.IN_ORDER) as cursor:
            depth.note(cursor, self._limits)
        return depth.pause_after(time.monotonic() - began)


logger = logging.getLogger("django_pgqueue.worker")

# Until it is looked for subscriptions with a bound, if there is none.
LOOK_SECONDS = 10.0

# What was counted is written down when a subscription becomes full, or is so no more,
# or while its back-fill goes by it; else so often: publishers look at that row.
NOTE_SECONDS = 5.0

# Jobs that are cancelled at a time.
DROP_JOBS_MAX = CANCEL_ROWS_MAX


class Backlogs:
    """Counts, holds those that pause, and drops the oldest jobs of others."""

    def __call__(self, link: Link) -> float:
        """Look at each once; return how many seconds until the next time."""
        with link.cursor() as cursor:
            bounded = backlogs.find_bounded(cursor)
            for each in bounded:
                if each.is_cut_off:
                    backlogs.fill_again(cursor, each.id)
        if not bounded:
            return LOOK_SECONDS
        began = time.monotonic()
        with link.transaction(depth.COUNT_SECONDS_MAX, Plans.IN_ORDER) as cursor:
            jobs = backlogs.count(cursor, bounded, beyond=DROP_JOBS_MAX)
        took = time.monotonic() - began
        full = {each.id for each in bounded if each.will_be_full(jobs[each.id])}
        noted = {
            each.id: jobs[each.id]
            for each in bounded
            if each.is_filling
            or each.is_full != (each.id in full)
            or each.age_seconds is None
            or each.age_seconds > NOTE_SECONDS
        }
        written: set[int] = set()
        if noted:
            with link.cursor() as cursor:
                written = backlogs.note(cursor, noted, full)
        for each in bounded:
            if each.id not in full or not (each.is_full or each.id in written):
                continue
            if not each.is_full:
                task = registry.tasks.get(each.task)
                telemetry.subscription_full(task, each, jobs[each.id])
            if each.on_full == "pause" and not each.is_held:
                _hold(link, each)
            elif each.on_full == "drop_oldest":
                _drop(link, each, jobs[each.id])
        return depth.pause_after(took)


def _hold(link: Link, each: Bounded) -> None:
    with link.transaction() as cursor:
        is_held = backlogs.hold(cursor, each.id)
    if is_held:
        logger.warning("held       subscription=%s: its messages stay in the log", each)


def _drop(link: Link, each: Bounded, jobs: int) -> None:
    """Cancel the oldest of the jobs that are too many."""
    most = each.depth_max or 0
    with link.transaction(depth.COUNT_SECONDS_MAX, Plans.IN_ORDER) as cursor:
        ids = backlogs.oldest(cursor, each, min(jobs - most, DROP_JOBS_MAX))
        answer = cancel(cursor, ids, by=f"backlog of {each.pattern}: {most:,} jobs")
    if answer.lanes:
        with link.cursor() as cursor:
            wake(cursor, [HINT])
    if answer.cancelled:
        logger.warning(
            "dropped    subscription=%s jobs=%d: the oldest, as its backlog says",
            each,
            len(answer.cancelled),
        )
