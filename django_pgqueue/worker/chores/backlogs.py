"""
Backlogs: chores of the leader that bound what waits for slow subscribers, and give new
subscriptions the older messages with which they were to begin.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from django_pgqueue import telemetry
from django_pgqueue.conf import Settings
from django_pgqueue.log import backfill, backlogs
from django_pgqueue.log.backfill import OpenBackfill
from django_pgqueue.log.backlogs import Bounded
from django_pgqueue.log.closed_days import Days, closed_days
from django_pgqueue.log.horizon import Horizons, horizons
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues import depth
from django_pgqueue.queues.cancel import CANCEL_ROWS_MAX, cancel
from django_pgqueue.queues.claim import remember_queues
from django_pgqueue.queues.fair import lane_hints
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

# Until it is looked for subscriptions with a bound, or new ones, if there is none.
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


# Until it is looked whether what a back-fill waits for has come.
AGAIN_SECONDS = 0.5

# How long a statement of a batch may take. The first one of a back-fill that begins at
# a time walks over the part of that day which was before.
BATCH_SECONDS = 600


class Backfills:
    """Goes on with each back-fill that is open."""

    def __init__(self) -> None:
        # By subscription, and when it began or was let go: the highest id drawn when no
        # older snapshot was left.
        self._finals: dict[tuple[int, int | None], int] = {}
        # Jobs made since the log heard of it.
        self._made: dict[int, int] = {}

    def __call__(self, link: Link) -> float:
        """Make the next jobs of each; return how many seconds until the next ones."""
        with link.cursor() as cursor:
            opened = backfill.find_open(cursor)
            if not opened:
                self._finals.clear()
                return LOOK_SECONDS
            done = []
            for each in opened:
                if not each.jobs_max:
                    continue
                older = each.is_held or (
                    (each.id, each.xid) not in self._finals
                    and backfill.has_older_snapshot(cursor, each)
                )
                # Asked for after that: what was drawn later sees the subscription.
                limits = horizons(cursor)
                if not older:
                    self._finals.setdefault((each.id, each.xid), limits.highest)
                # And these after that: one that was reopened since has nothing new.
                days = closed_days(cursor)
                done.append(self._fill(link, each, limits, days))
        return 0.0 if any(done) else AGAIN_SECONDS

    def _fill(
        self, link: Link, each: OpenBackfill, limits: Horizons, days: Days
    ) -> bool:
        """Make the next jobs of one; return whether there may be more at once."""
        bound = each.bound(limits)
        final = None if each.is_held else self._finals.get((each.id, each.xid))
        if bound <= each.position and (final is None or each.position < final):
            return each.is_held and _release(link, each, each.position)
        with link.transaction(BATCH_SECONDS, Plans.IN_ORDER) as cursor:
            # Through the key, also of a day that the planner knows nothing of.
            filled = backfill.fill(cursor, each, bound=bound, final=final, days=days)
        if filled is None:
            return True
        self._made[each.id] = self._made.get(each.id, 0) + filled.jobs
        hints = [each.queue] if filled.jobs > filled.in_lanes else []
        hints += lane_hints(each.queue, filled.in_lanes, filled.in_turn)
        if hints:
            with link.cursor() as cursor:
                wake(cursor, hints)
        if filled.is_over:
            self._finals.pop((each.id, each.xid), None)
            logger.info(
                "filled     subscription=%s → %s jobs=%d",
                each.pattern,
                each.queue,
                self._made.pop(each.id),
            )
        if each.is_held and filled.position >= bound:
            return _release(link, each, filled.position)
        return not filled.is_over and filled.position < bound


def _release(link: Link, each: OpenBackfill, position: int) -> bool:
    """Let one that is held have jobs again, for it has those of all that there is."""
    with link.transaction() as cursor:
        is_released = backlogs.release(cursor, each.id, position)
    if is_released:
        logger.info("released   subscription=%s → %s", each.pattern, each.queue)
    return is_released
