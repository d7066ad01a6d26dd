"""
Emitted: what running tasks have emitted and is not written yet.

The reporter writes it, that of all jobs of the process by one statement, at most every
50 ms; what is left at the end of an attempt goes with its settle.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from django_pgqueue.exceptions import LeaseLost
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.queues import lease, output, waited
from django_pgqueue.queues.output import Said
from django_pgqueue.worker.lease.leases import Held

# Between two writes of a process. The first value after a pause is written at once.
INTERVAL_SECONDS = 0.05

# Of one statement; what is left follows at once.
ROWS_MAX = 1_000
WRITE_BYTES_MAX = 2**20

# How long a write may take, of rows of which none is waited for.
STATEMENT_SECONDS = 10


class Values:
    """What one delivery has emitted and is not written."""

    __slots__ = ("held", "is_lost", "unwritten")

    def __init__(self, held: Held) -> None:
        self.held = held
        self.is_lost = False
        self.unwritten: list[tuple[int, str]] = []

    @property
    def lease(self) -> tuple[int, int]:
        """Its job and delivery."""
        return self.held.job.id, self.held.job.delivery


# Returns those of jobs whose values somebody waits for.
Streamed = Callable[[Collection[int]], set[int]]


class Emitted:
    """The values of all jobs of a process, on their way."""

    def __init__(self, *, worker: str, streamed: Streamed) -> None:
        self._worker = worker
        self._streamed = streamed
        self._lock = threading.Lock()
        # Held while values are written, so that none of a job follows its last ones.
        self._writing = threading.Lock()
        self._pending: dict[Values, None] = {}
        self._due_at = 0.0

    def add(self, values: Values, new: Sequence[tuple[int, str]]) -> bool:
        """Keep values until they are due; return whether there were none; LeaseLost."""
        with self._lock:
            if values.is_lost:
                raise LeaseLost(*values.lease)
            is_first = not self._pending
            values.unwritten += new
            self._pending[values] = None
        return is_first

    def take(self, values: Values) -> list[tuple[int, str]]:
        """End the values of a delivery; return those that are not written."""
        # Waits for a write that is under way.
        with self._writing, self._lock:
            self._pending.pop(values, None)
            left, values.unwritten = values.unwritten, []
        return left

    def seconds(self) -> float | None:
        """Return in how many seconds there is something to write; None: nothing is."""
        with self._lock:
            if not self._pending:
                return None
        return max(self._due_at - time.monotonic(), 0.0)

    def write(self, link: Link) -> None:
        """Write what is due, and tell those who wait for it."""
        if self.seconds() != 0.0:
            return
        with self._writing:
            with self._lock:
                batch, is_full = self._batch()
            said = [
                Said(*values.lease, *each)
                for values, count in batch.items()
                for each in islice(values.unwritten, count)
            ]
            written = self._append(link, said)
            lost = self._lost(link, batch, written)
            self._written(batch, written, lost)
        if not (is_full and written):
            self._due_at = time.monotonic() + INTERVAL_SECONDS
        told = self._streamed({job for job, _ in written})
        if told:
            with link.cursor() as cursor:
                waited.tell(cursor, told, hint=waited.OUTPUT_HINT)

    def _batch(self) -> tuple[dict[Values, int], bool]:
        """Return how many values of each are written now, and whether more are left."""
        batch: dict[Values, int] = {}
        rows, size = ROWS_MAX, WRITE_BYTES_MAX
        for values in self._pending:
            for count, (_, text) in enumerate(values.unwritten, start=1):
                if rows <= 0 or size <= 0:
                    return batch, True
                batch[values] = count
                rows, size = rows - 1, size - len(text)
        return batch, False

    def _append(self, link: Link, said: Sequence[Said]) -> set[tuple[int, int]]:
        with link.connection.transaction(), link.cursor() as cursor:
            limit(cursor, seconds=STATEMENT_SECONDS, plans=Plans.BY_INDEX)
            return output.append(cursor, said, worker=self._worker)

    def _lost(
        self,
        link: Link,
        batch: Collection[Values],
        written: Collection[tuple[int, int]],
    ) -> set[tuple[int, int]]:
        """Return which of those that were not written are somebody else's by now."""
        missing = {values.lease for values in batch} - set(written)
        if not missing:
            return set()
        with link.cursor() as cursor:
            held = lease.still_held(cursor, worker=self._worker, leases=list(missing))
        return {(job, delivery) for job, delivery in missing if job not in held}

    def _written(
        self,
        batch: dict[Values, int],
        written: Collection[tuple[int, int]],
        lost: Collection[tuple[int, int]],
    ) -> None:
        """Forget what is written, or in vain; who is locked gives way to others."""
        with self._lock:
            for values, count in batch.items():
                self._pending.pop(values, None)
                if values.lease in lost:
                    values.is_lost = True
                    values.unwritten = []
                elif values.lease in written:
                    del values.unwritten[:count]
                if values.unwritten:
                    self._pending[values] = None
