"""
Back-fills: give new subscriptions the older messages with which they were to begin.

A chore of the leader, a batch for each subscription each time that it is called.
"""

from __future__ import annotations

import logging

from django_pgqueue.log import backfill, backlogs
from django_pgqueue.log.backfill import OpenBackfill
from django_pgqueue.log.closed_days import Days, closed_days
from django_pgqueue.log.horizon import Horizons, horizons
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues.fair import lane_hints

logger = logging.getLogger("django_pgqueue.worker")

# Until it is looked for new subscriptions, or whether what one waits for has come.
LOOK_SECONDS = 10.0
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
