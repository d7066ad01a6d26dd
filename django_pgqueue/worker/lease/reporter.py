"""
Reporter: what running tasks say meanwhile: progress, what they emit, longer leases.

It has a connection of its own, opened when the first task asks: a row that somebody
keeps locked must hold up neither the heartbeat nor the settler. A job's last report,
and the last values that it emits, are not written here but with its settle.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any

import psycopg

from django_pgqueue.exceptions import LeaseLost
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.queues import lease, output, waited
from django_pgqueue.queues.output import Said
from django_pgqueue.worker.lease.leases import Held
from django_pgqueue.worker.service import Service

# Between two writes of a process. The first value after a pause is written at once.
EMITS_INTERVAL_SECONDS = 0.05

# Of one statement; what is left follows at once.
ROWS_MAX = 1_000
WRITE_BYTES_MAX = 2**20

# How long a write may take, of rows of which none is waited for.
EMITS_STATEMENT_SECONDS = 10


@dataclass(slots=True, eq=False)
class Values:
    """What one delivery has emitted and is not written."""

    held: Held
    is_lost: bool = False
    unwritten: list[tuple[int, str]] = field(default_factory=list)

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
            self._due_at = time.monotonic() + EMITS_INTERVAL_SECONDS
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
        with link.transaction(EMITS_STATEMENT_SECONDS, Plans.BY_INDEX) as cursor:
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


logger = logging.getLogger("django_pgqueue.worker")

# A job's progress is written at most this often.
INTERVAL_SECONDS = 1.0

# How long to sleep when no running task has reported anything.
IDLE_SECONDS = 60.0

# How long a statement may wait for a row that somebody has locked.
STATEMENT_SECONDS = 2

# How often a waiting task looks whether its timeout was raised: an exception from
# outside does not arrive while a thread waits for a lock.
LOOK_SECONDS = 0.2


@dataclass(slots=True, eq=False)
class Report:
    """The progress of one job."""

    held: Held
    unwritten: str | None = None  # JSON text that is not written yet.
    due_at: float = 0.0
    # Held while the reporter writes, so that nothing older follows the last one.
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(slots=True, eq=False)
class Extension:
    """A task that waits for its lease to be extended."""

    held: Held
    seconds: float
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class Reporter(Service):
    """Writes what tasks say about themselves. Starts with the first that does."""

    name = "reporter"

    def __init__(
        self, link: Link, *, worker: str, streamed: Streamed = lambda ids: set()
    ) -> None:
        super().__init__(link)
        self._worker = worker
        self._emitted = Emitted(worker=worker, streamed=streamed)
        self._lock = threading.Lock()
        self._reports: dict[int, Report] = {}
        self._extensions: list[Extension] = []

    def report(self, report: Report, progress: Mapping[str, Any]) -> None:
        """Keep a report until it is due; a later one replaces it."""
        text = json.dumps(progress)
        with self._lock:
            report.unwritten = text
            is_new = report.held.job.id not in self._reports
            self._reports[report.held.job.id] = report
        if is_new:
            self.call()

    def take(self, report: Report) -> str | None:
        """End a job's reports; return the last one if it is not written yet."""
        with self._lock:
            self._reports.pop(report.held.job.id, None)
        # Waits for a write that is under way.
        with report.lock:
            return self._taken(report)

    def emit(self, values: Values, new: Sequence[tuple[int, str]]) -> None:
        """Keep what a delivery emits until it is due; LeaseLost."""
        if self._emitted.add(values, new):
            self.call()

    def take_emitted(self, values: Values) -> list[tuple[int, str]]:
        """End what a delivery emits; return what is not written yet."""
        return self._emitted.take(values)

    def extend(self, held: Held, seconds: float) -> None:
        """
        Let a lease end no sooner than *seconds* from now; returns when that is so.

        Raises:
            LeaseLost: It is somebody else's; or it ran out before there was an answer.
        """
        extension = Extension(held, seconds)
        with self._lock:
            self._extensions.append(extension)
        self.call()
        while not extension.done.wait(LOOK_SECONDS):
            if time.monotonic() >= held.valid_until:
                raise LeaseLost(held.job.id, held.job.delivery)
        if extension.error is not None:
            raise extension.error

    def tick(self) -> float:
        """Do what was asked for; then wait for what is due next."""
        self._emitted.write(self.link)
        with self._lock:
            extensions = list(self._extensions)
        for extension in extensions:
            self._extend(extension)
        now = time.monotonic()
        with self._lock:
            due = [r for r in self._reports.values() if r.unwritten and r.due_at <= now]
        for report in due:
            self._write(report)
        with self._lock:
            # A report that is replaced wakes nobody, so it is looked for.
            pause = INTERVAL_SECONDS / 4 if self._reports else IDLE_SECONDS
        emitted = self._emitted.seconds()
        return pause if emitted is None else min(pause, emitted)

    def _extend(self, extension: Extension) -> None:
        held, sent_at = extension.held, time.monotonic()
        try:
            with self.link.transaction(STATEMENT_SECONDS, Plans.BY_INDEX) as cursor:
                left = lease.extend(
                    cursor,
                    worker=self._worker,
                    job_id=held.job.id,
                    delivery=held.job.delivery,
                    lease=timedelta(seconds=extension.seconds),
                )
        except psycopg.errors.QueryCanceled:
            # Somebody keeps its row locked; asked again as long as the task waits.
            if time.monotonic() < held.valid_until:
                self.wake.set()
                return
            left = None
        with self._lock:
            self._extensions.remove(extension)
        if left is None:
            extension.error = LeaseLost(held.job.id, held.job.delivery)
        else:
            held.renewed(sent_at, left)
        extension.done.set()

    def _write(self, report: Report) -> None:
        held = report.held
        with report.lock:
            text = self._taken(report)
            if text is None:
                return
            report.due_at = time.monotonic() + INTERVAL_SECONDS
            try:
                with self.link.transaction(STATEMENT_SECONDS, Plans.BY_INDEX) as cursor:
                    lease.report_progress(
                        cursor,
                        worker=self._worker,
                        job_id=held.job.id,
                        delivery=held.job.delivery,
                        progress=text,
                    )
            except BaseException as error:
                with self._lock:
                    report.unwritten = report.unwritten or text
                if not isinstance(error, psycopg.errors.QueryCanceled):
                    raise

    def _taken(self, report: Report) -> str | None:
        with self._lock:
            text, report.unwritten = report.unwritten, None
        return text
