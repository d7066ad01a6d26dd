"""
Back-fills: give new subscriptions the older messages with which they were to begin.

A chore of the leader, a batch for each subscription each time that it is called.
"""

from __future__ import annotations

import logging

from django_pgqueue.log import backfill
from django_pgqueue.log.backfill import OpenBackfill
from django_pgqueue.log.closed_days import Days, closed_days
from django_pgqueue.log.horizon import Horizons, horizons
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues.fair import HINT as FAIR_HINT
from django_pgqueue.queues.lanes import HINT

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
        # By subscription: the highest id drawn when no older snapshot was left.
        self._finals: dict[int, int] = {}
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
                older = each.id not in self._finals and backfill.has_older_snapshot(
                    cursor, each
                )
                # Asked for after that: what was drawn later sees the subscription.
                limits = horizons(cursor)
                if not older:
                    self._finals.setdefault(each.id, limits.highest)
                # And these after that: one that was reopened since has nothing new.
                days = closed_days(cursor)
                done.append(self._fill(link, each, limits, days))
        return 0.0 if any(done) else AGAIN_SECONDS

    def _fill(
        self, link: Link, each: OpenBackfill, limits: Horizons, days: Days
    ) -> bool:
        """Make the next jobs of one; return whether there may be more at once."""
        bound, final = each.bound(limits), self._finals.get(each.id)
        if bound <= each.position and (final is None or each.position < final):
            return False
        with link.connection.transaction(), link.cursor() as cursor:
            # Through the key, also of a day that the planner knows nothing of.
            limit(cursor, seconds=BATCH_SECONDS, plans=Plans.IN_ORDER)
            filled = backfill.fill(cursor, each, bound=bound, final=final, days=days)
        if filled is None:
            return True
        self._made[each.id] = self._made.get(each.id, 0) + filled.jobs
        hints = [each.queue] if filled.jobs > filled.in_lanes else []
        if filled.in_turn:
            hints.append(f"{FAIR_HINT}{each.queue}")
        elif filled.in_lanes:
            hints.append(HINT)
        if hints:
            with link.cursor() as cursor:
                wake(cursor, hints)
        if filled.is_over:
            self._finals.pop(each.id, None)
            logger.info(
                "filled     subscription=%s → %s jobs=%d",
                each.pattern,
                each.queue,
                self._made.pop(each.id),
            )
        return not filled.is_over and filled.position < bound
