"""
Settler: writes outcomes, as many at once as are waiting anyway.

The tenth hop of a job's life. Batching is natural: while one write is under way,
finished jobs gather, and the next write takes them all. There is no timer, so an idle
system acks at once.

An outcome whose write got no answer is written again when the database is back; what
then no longer matches is looked up, because the first write may have been applied.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import psycopg

from django_pgqueue import telemetry
from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import lease, settle
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.partitions import make_partitions
from django_pgqueue.queues.settle import Ended
from django_pgqueue.tasks.outcome import Cancelled, Expired, GaveUp, Retried
from django_pgqueue.tasks.perform import Performed, ended
from django_pgqueue.tasks.registry import find_sender
from django_pgqueue.worker.leases import Leases
from django_pgqueue.worker.service import Service, is_broken

logger = logging.getLogger("django_pgqueue.worker")

BATCH_ROWS_MAX = 1_000
WAIT_SECONDS = 1.0

KINDS: dict[str, Callable[..., set[int]]] = {
    "ack": settle.ack,
    "retry": settle.retry,
    "dead": settle.dead_letter,
    "expire": settle.expire,
    "cancel": settle.cancel,
    "note": settle.note,
}

BY_OUTCOME = {Retried: "retry", GaveUp: "dead", Expired: "expire", Cancelled: "cancel"}


class Settlement:
    """One outcome on its way to the database."""

    __slots__ = (
        "done",
        "goes_on",
        "is_done",
        "is_written",
        "job",
        "performed",
        "told",
        "written",
    )

    def __init__(
        self,
        job: Claimed,
        performed: Performed | None,
        done: Any = None,
        *,
        goes_on: bool = False,
        told: bool | None = None,
    ) -> None:
        self.job = job
        self.performed = performed  # None: hand the job back, it never started.
        self.done = done  # A held lock that is released once this is settled.
        self.goes_on = goes_on  # Its task does, after this.
        # Nothing to be written any more: True: the job's own transaction was
        # committed; False: it was rolled back, because the lease was lost.
        self.told = told
        self.written: Ended | None = None
        self.is_written: bool | None = None  # False: stale. None: not yet, or refused.
        self.is_done = False

    @property
    def kind(self) -> str:
        """Which statement writes it."""
        if self.performed is None:
            return "release"
        if self.told is not None:
            return "told"
        if self.performed.settled:
            return "note"
        return BY_OUTCOME.get(type(self.performed.outcome), "ack")


class Settler(Service):
    """Takes outcomes from the threads and writes them in batches."""

    name = "settler"

    def __init__(
        self,
        link: Link,
        *,
        worker: str,
        leases: Leases,
        on_retry: Callable[[float], None],
    ) -> None:
        super().__init__(link)
        self._worker = worker
        self._leases = leases
        self._on_retry = on_retry
        self._inbox: queue.SimpleQueue[Settlement | None] = queue.SimpleQueue()
        self._batch: list[Settlement] = []
        # Whether the batch at hand may have been written without an answer.
        self._is_uncertain = False
        self._idle = threading.Condition()
        self._unsettled = 0
        self.counts: defaultdict[str, int] = defaultdict(int)

    def put(self, settlement: Settlement) -> None:
        """
        Hand over an outcome; returns at once.

        That of a job which is settled while its task goes on is only noted.
        """
        if settlement.performed is not None and self._leases.is_settled(settlement.job):
            settlement.performed.settled = True
        with self._idle:
            self._unsettled += 1
        self._inbox.put(settlement)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until everything handed over is settled; False when it is not."""
        with self._idle:
            return self._idle.wait_for(lambda: self._unsettled == 0, max(seconds, 0))

    def stop(self) -> None:
        """End the loop; call it when everything is settled, or given up."""
        super().stop()
        self._inbox.put(None)

    def tick(self) -> float:
        """Write what is waiting; wait up to a second for the first of it."""
        if not self._batch:
            self._gather()
        if self._batch:
            self._write_batch()
        return 0.0

    def _gather(self) -> None:
        try:
            first = self._inbox.get(timeout=WAIT_SECONDS)
            if first is not None:
                self._batch.append(first)
            while len(self._batch) < BATCH_ROWS_MAX:
                more = self._inbox.get_nowait()
                if more is not None:
                    self._batch.append(more)
        except queue.Empty:
            pass

    def _write_batch(self) -> None:
        by_kind: dict[str, list[Settlement]] = {}
        for item in self._batch:
            by_kind.setdefault(item.kind, []).append(item)
        for kind, items in by_kind.items():
            try:
                self._write(kind, items)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                self._is_uncertain = True
                raise
            except psycopg.Error as error:
                if is_broken(self.link, error):
                    self._is_uncertain = True
                    raise
                self._write_one_by_one(kind, items, error)
        self._is_uncertain = False

    def _write(self, kind: str, items: list[Settlement]) -> None:
        if kind == "told":
            for item in items:
                self._finish(item, "ack", is_stale=not item.told)
            self._batch = [item for item in self._batch if item.kind != kind]
            return
        with self.link.cursor() as cursor:
            if kind == "release":
                matched = self._release(cursor, items)
            else:
                self._write_progress(cursor, items)
                matched = self._settle(cursor, kind, items)
                wake.wake(cursor, _due_at_once(items, matched))
            missing = [item for item in items if item.job.id not in matched]
            if missing and self._is_uncertain:
                matched |= settle.applied(
                    cursor, [(item.job.id, item.job.delivery) for item in missing]
                )
        for item in items:
            self._finish(item, kind, is_stale=item.job.id not in matched)
        self._batch = [item for item in self._batch if item.kind != kind]

    def _write_progress(self, cursor: Any, items: list[Settlement]) -> None:
        """Write the last reports of jobs, before their rows move."""
        for item in items:
            if item.performed is not None and item.performed.progress is not None:
                lease.report_progress(
                    cursor,
                    worker=self._worker,
                    job_id=item.job.id,
                    delivery=item.job.delivery,
                    progress=item.performed.progress,
                )

    def _settle(self, cursor: Any, kind: str, items: list[Settlement]) -> set[int]:
        rows = [self._row(item) for item in items]
        try:
            return KINDS[kind](cursor, worker=self._worker, ended=rows)
        except psycopg.errors.CheckViolation:
            # No partition of the archive for today: the leader was away for a week,
            # or there is none. Made here, and the same statement again.
            connection = self.link.connection
            with connection.transaction(), connection.cursor() as maker:
                if not make_partitions(maker):
                    raise
            return KINDS[kind](cursor, worker=self._worker, ended=rows)

    def _row(self, item: Settlement) -> Ended:
        if item.written is None:
            assert item.performed is not None
            held = self._leases.get(item.job)
            waited = 0.0 if held is None else time.monotonic() - held.claimed_at
            item.written = ended(
                item.job, item.performed, worker=self._worker, waited=waited
            )
        return item.written

    def _release(self, cursor: Any, items: list[Settlement]) -> set[int]:
        leases = [(i.job.id, i.job.delivery, i.job.due_at) for i in items]
        released = lease.release(cursor, worker=self._worker, leases=leases)
        wake.wake(cursor, {name for _, name in released})
        return {job_id for job_id, _ in released}

    def _write_one_by_one(
        self, kind: str, items: list[Settlement], error: psycopg.Error
    ) -> None:
        """One row that the database refuses must not keep the others unsettled."""
        for item in items:
            try:
                if len(items) > 1:
                    self._write_alone(kind, item)
                    continue
            except psycopg.Error as refused:
                if _is_lost(self.link, refused):
                    raise
                error = refused
            try:
                self._write_bare(kind, item, error)
            except psycopg.Error as refused:
                if _is_lost(self.link, refused):
                    raise
                self._give_up(kind, item, refused)

    def _write_alone(self, kind: str, item: Settlement) -> None:
        with self.link.cursor() as cursor:
            matched = self._settle(cursor, kind, [item])
        self._batch.remove(item)
        self._finish(item, kind, is_stale=item.job.id not in matched)

    def _write_bare(self, kind: str, item: Settlement, error: psycopg.Error) -> None:
        """Settle without the result and the error text that PostgreSQL refused."""
        logger.error(
            "refused    job=%d task=%s: the database refused what its %s would store; "
            "settled without it: %s",
            item.job.id,
            item.job.task,
            kind,
            error,
        )
        row = self._row(item)
        item.written = Ended(
            id=row.id,
            delivery=row.delivery,
            ran_seconds=row.ran_seconds,
            reason=row.reason,
            delay_seconds=row.delay_seconds,
            gives_attempt_back=row.gives_attempt_back,
            unknown_task=row.unknown_task,
        )
        self._write_alone(kind, item)

    def _give_up(self, kind: str, item: Settlement, error: psycopg.Error) -> None:
        """
        Leave a job to its lease: no row for it can be written at all.

        For one, whose id a dead letter has already, inserted by hand: the job runs
        again when its lease has run out, and every other job goes on.
        """
        logger.error(
            "unsettled  job=%d task=%s: the database refused its %s: %s",
            item.job.id,
            item.job.task,
            kind,
            error,
        )
        self.counts["unsettled"] += 1
        self._batch.remove(item)
        self._release_waiting(item)

    def _finish(self, item: Settlement, kind: str, *, is_stale: bool) -> None:
        item.is_written = not is_stale
        if kind == "note":
            self._tell_note(item)
        elif is_stale:
            self.counts["stale"] += 1
            telemetry.stale(find_sender(item.job.task), item.job, kind=kind)
        else:
            self._tell(item, kind)
        self._release_waiting(item)

    def _release_waiting(self, item: Settlement) -> None:
        if item.goes_on and item.is_written:
            self._leases.goes_on(item.job)
        elif item.kind == "note":
            self._leases.ended(item.job)
        self._leases.drop(item.job)
        item.is_done = True
        if item.done is not None:
            item.done.release()
        with self._idle:
            self._unsettled -= 1
            if not self._unsettled:
                self._idle.notify_all()

    def _tell(self, item: Settlement, kind: str) -> None:
        job, performed = item.job, item.performed
        if performed is None:
            return
        outcome, sender = performed.outcome, find_sender(job.task)
        self.counts[kind] += 1
        if kind == "ack":
            telemetry.succeeded(
                sender,
                job,
                ran_seconds=performed.ran_seconds or 0.0,
                result=performed.result,
            )
        elif isinstance(outcome, Retried):
            delay_seconds = outcome.delay.total_seconds()
            self._on_retry(delay_seconds)
            telemetry.retried(
                sender, job, error=performed.error, delay_seconds=delay_seconds
            )
        elif isinstance(outcome, GaveUp):
            telemetry.dead(sender, job, reason=outcome.reason, error=performed.error)
        elif isinstance(outcome, Cancelled):
            telemetry.cancelled(sender, job)
        else:
            telemetry.expired(sender, job)

    def _tell_note(self, item: Settlement) -> None:
        assert item.performed is not None
        error = item.performed.error
        if error is not None:
            logger.warning(
                "late       job=%d task=%s failed after it was settled error=%s: %s",
                item.job.id,
                item.job.task,
                type(error).__name__,
                "noted in its archived row" if item.is_written else "not noted",
            )


def _is_lost(link: Link, error: psycopg.Error) -> bool:
    """Whether the write may be tried again as it is, on another connection."""
    return isinstance(
        error, (psycopg.OperationalError, psycopg.InterfaceError)
    ) or is_broken(link, error)


def _due_at_once(items: list[Settlement], matched: set[int]) -> set[str]:
    """Return the queues of jobs that any worker may run now, as after a stop."""
    return {
        item.job.queue
        for item in items
        if item.job.id in matched
        and item.performed is not None
        and isinstance(item.performed.outcome, Retried)
        and not item.performed.outcome.delay
    }
