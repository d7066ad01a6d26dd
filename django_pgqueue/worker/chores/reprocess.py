"""
Reprocess: a chore of the leader that redrives dead letters by rules, each once.

The rules are those of PGQUEUE["REPROCESS"]. A job that gives up again stays a dead
letter, whichever rule has sent it back. Two leaders do no harm but for the rate.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import psycopg

from django_pgqueue.conf import Reprocess, Settings
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues import reprocess
from django_pgqueue.queues.dead_letters import hints, redrive
from django_pgqueue.queues.reprocess import START

logger = logging.getLogger("django_pgqueue.worker")

# Dead letters that are redriven together: of a minute, by the rate, and no more.
CHUNK_ROWS_MAX = 500

# When all are read, and when there are more that the rule does not mean.
REST_SECONDS, NEXT_SECONDS = 60.0, 1.0

# After that, dead letters are read anew from the oldest on: some were locked, had a key
# that a live job has, or came by a transaction that committed late.
ANEW_SECONDS = 3_600.0

# One look may take so long.
LOOK_SECONDS_MAX = 10


def chores(settings: Settings) -> list[Callable[[Link], float]]:
    """Return a chore for each rule of these settings."""
    return [Rule(place, rule) for place, rule in enumerate(settings.reprocess)]


class Rule:
    """Redrives what one rule means, no faster than it says."""

    def __init__(self, place: int, rule: Reprocess) -> None:
        self._place, self._rule = place, rule
        self._spacing = rule.spacing
        self._most = min(max(int(60 / self._spacing), 1), CHUNK_ROWS_MAX)
        self._floor = START
        self._anew_at = time.monotonic() + ANEW_SECONDS

    def __str__(self) -> str:
        """Where it is written."""
        return f"PGQUEUE['REPROCESS'][{self._place}]"

    def __call__(self, link: Link) -> float:
        """Redrive the next ones; return how many seconds until those after them."""
        found = self._look(link)
        if found.ids:
            self._redrive(link, found.ids)
        # Noted afterwards: what the database was lost over is looked at again.
        self._floor = found.floor
        if found.is_all and time.monotonic() >= self._anew_at:
            self._floor, self._anew_at = START, time.monotonic() + ANEW_SECONDS
        pause = len(found.ids) * self._spacing
        return max(pause, REST_SECONDS if found.is_all else NEXT_SECONDS)

    def _look(self, link: Link) -> reprocess.Found:
        with link.transaction(LOOK_SECONDS_MAX, Plans.IN_ORDER) as cursor:
            reprocess.sort_no_table(cursor)
            return reprocess.look(
                cursor, self._rule, floor=self._floor, most=self._most
            )

    def _redrive(self, link: Link, ids: list[int]) -> None:
        try:
            with link.transaction() as cursor:
                moved = redrive(cursor, ids, once=True)
        except psycopg.IntegrityError as error:
            # One was written by hand, and its queue refuses it: the others go alone.
            if len(ids) > 1:
                for job_id in ids:
                    self._redrive(link, [job_id])
                return
            problem = str(error).split("\n")[0]
            logger.error("failed     redrive of job=%d by %s: %s", *ids, self, problem)
            return
        with link.cursor() as cursor:
            wake(cursor, hints(moved))
        if moved:
            logger.info("redriven   jobs=%d by %s", len(moved), self)
