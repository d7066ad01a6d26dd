"""Pull ends: a chore of the leader that counts what clients of pull queues end."""

from __future__ import annotations

import time
from datetime import datetime

from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.queues import pull_ends
from django_pgqueue.worker.tally import Tally

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
