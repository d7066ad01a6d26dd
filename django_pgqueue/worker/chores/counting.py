"""
Counting: adds what a process has settled to the spans of tasks in the database.

Every second, or few, by the connection of the heartbeat, and once when it stops.
What cannot be added is added the next time. A process that is killed loses what it has
counted since; a connection that is lost before its answer may add that twice.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime
from operator import sub

import psycopg

from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.queues import pull_ends, task_spans
from django_pgqueue.queues.task_spans import Counted
from django_pgqueue.worker.service import is_broken
from django_pgqueue.worker.tally import Series, Tally

logger = logging.getLogger("django_pgqueue.worker")

# From one time to the next: for each queue and task that was added, within these.
SECONDS_FOR_EACH = 0.1
INTERVAL_SECONDS_MIN, INTERVAL_SECONDS_MAX = 1.0, 5.0

# Of failures in a row, the first is told, and each of so many.
TOLD_EVERY = 100


class Counting:
    """What was counted, and what of it the database has."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        # By queue and task. Those that had our place have added what they could.
        self._added = self._counted()
        self._due_at = time.monotonic() + INTERVAL_SECONDS_MIN
        self._failures = 0

    def add_if_due(self, link: Link) -> None:
        """
        Add what is new, if that was not done lately.

        Raises:
            Exception: The connection of *link* is broken.
        """
        now = time.monotonic()
        if now < self._due_at:
            return
        # It may fail.
        self._due_at = now + INTERVAL_SECONDS_MAX
        pause = self.add(link) * SECONDS_FOR_EACH
        pause = min(max(pause, INTERVAL_SECONDS_MIN), INTERVAL_SECONDS_MAX)
        self._due_at = now + pause

    def add(self, link: Link) -> int:
        """
        Add what is new; return of how many tasks. One thread at a time may call it.

        Raises:
            Exception: The connection of *link* is broken.
        """
        counted = self._counted()
        new = {
            key: fresh
            for key, counts in counted.items()
            if (fresh := _since(self._added.get(key), counts)) is not None
        }
        if not new:
            return 0
        try:
            task_spans.add(link, new)
        except psycopg.Error as error:
            if is_broken(link, error):
                raise
            self._failures += 1
            if self._failures == 1 or not self._failures % TOLD_EVERY:
                problem = str(error).split("\n")[0]
                logger.warning(
                    "uncounted  charts lack what was settled, and get it later: %s",
                    problem,
                )
        else:
            self._added, self._failures = counted, 0
        return len(new)

    def _counted(self) -> dict[tuple[str, str], Counted]:
        return {
            key: _counts(each)
            for key, each in list(self._tally.series.items())
            # The spans have those of pull queues before the tally: see PullEnds.
            if key[1] != PULL_TASK
        }


def _counts(series: Series) -> Counted:
    # Copies, each at once: another thread goes on counting.
    ends = dict(series.ends)

    def of(*names: str) -> int:
        return sum(ends.get(name, 0) for name in names)

    return Counted(
        succeeded=of("succeeded"),
        failed=of("retried", "crashed", "dead"),
        dead=of("dead"),
        cancelled=of("cancelled", "superseded"),
        expired=of("expired"),
        wait_seconds=series.seconds_waited,
        run_seconds=series.seconds_run,
        waits=list(series.waits),
        runs=list(series.runs),
    )


def _since(before: Counted | None, now: Counted) -> Counted | None:
    """Return what was counted between the two; None: nothing was."""
    if before is None or before == now:
        return now if before is None else None
    numbers = {
        name: getattr(now, name) - getattr(before, name)
        for name in (*task_spans.COUNTS, *task_spans.SUMS)
    }
    waits = list(map(sub, now.waits, before.waits))
    runs = list(map(sub, now.runs, before.runs))
    return Counted(**numbers, waits=waits, runs=runs)


# Until the next look: where something was found, or nothing; and where there is no
# pull queue, so that a worker without any is left in peace.
SOON_SECONDS, PAUSE_SECONDS, WITHOUT_SECONDS = 2.0, 5.0, 20.0

# What a transaction that was open for long has ended is older than what was moved by
# then: from the first one on, so often.
FROM_START_SECONDS = 60.0

# What moving some may take: it is taken back then, and done later.
MOVE_SECONDS_MAX = 10


class PullEnds:
    """Moves what has ended to the spans of tasks, and tells it as this worker's."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._since: datetime | None = None
        self._from_start_at = 0.0

    def __call__(self, link: Link) -> float:
        """Move some; return how many seconds until the next time."""
        now = time.monotonic()
        if now >= self._from_start_at:
            self._since = None
            self._from_start_at = now + FROM_START_SECONDS
        with link.cursor() as cursor:
            if not pull_ends.has_pull_queues(cursor):
                return WITHOUT_SECONDS
        with link.transaction(MOVE_SECONDS_MAX, Plans.IN_ORDER) as cursor:
            moved = pull_ends.move(cursor, since=self._since)
        self._since = moved.last
        for queue, counted in moved.by_queue.items():
            self._tally.note_pulled(queue, counted)
        if moved.rows == pull_ends.ROWS_MAX:
            return 0.0
        return SOON_SECONDS if moved.rows else PAUSE_SECONDS
