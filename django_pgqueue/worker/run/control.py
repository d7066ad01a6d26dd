"""
Control: what a task's context does to its job, in a worker.

Between the context, which the task has, and the loops of the process. It outlives
neither: once the job is handed to the settler, every call is refused, from whatever
thread it comes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import LeaseLost
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import settle
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.context import JobControl, has_ended
from django_pgqueue.tasks.outcome import Performed, Retried, outcome_after
from django_pgqueue.tasks.perform import after_word
from django_pgqueue.tasks.prepare import Prepared
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.tasks.settlement import ack_within, is_noted
from django_pgqueue.worker.lease.leases import Held, Leases, Slots
from django_pgqueue.worker.lease.reporter import LOOK_SECONDS, Report, Reporter, Values
from django_pgqueue.worker.run.call_collector import CallCollector, Run
from django_pgqueue.worker.service import backoff_seconds
from django_pgqueue.worker.settle.settler import Settlement, Settler


class Interrupted(Exception):
    """The worker stopped, and its grace was over, while the job ran."""


def interrupted(
    job: Claimed,
    grace_seconds: float,
    ran_seconds: float | None = None,
    cause: BaseException | None = None,
) -> Performed:
    """Return the end of a job that is handed back: at once, with its attempt."""
    logger.warning(
        "interrupted job=%d task=%s: the grace of %g s is over; handed back",
        job.id,
        job.task,
        grace_seconds,
    )
    error = Interrupted(
        f"The worker stopped and its grace of {grace_seconds:g} s was over."
    )
    error.__cause__ = cause
    return Performed(Retried(timedelta(0), gives_attempt_back=True), error, ran_seconds)


logger = logging.getLogger("django_pgqueue.worker")


# Where not even the policy of its task can be asked.
AGAIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobServices:
    """What all jobs of a process are run with, by threads and by the event loop."""

    settings: Settings
    installation: str  # The uuid that begins idempotency keys.
    slots: Slots
    leases: Leases
    settler: Settler
    reporter: Reporter
    collector: CallCollector
    # Called when more jobs could start.
    on_capacity: Callable[[], None]
    # Called for a job that is to run alone, which is handed back. None: it runs.
    on_suspect: Callable[[], None] | None

    def admit(self, job: Claimed, now: float) -> Held | Performed | None:
        """Return as Leases.admit(); None also for a job that is to run alone."""
        held = self.leases.admit(job, now, self.settings)
        if job.runs_alone and self.on_suspect is not None and isinstance(held, Held):
            self.on_suspect()
            return None
        return held

    def hand_back(self, jobs: list[Claimed]) -> None:
        """Return claimed jobs that must not start here to their queues."""
        for job in jobs:
            self.settler.put(Settlement(job, None))

    def hand_back_near(self, job: Claimed) -> None:
        """Return what was taken for the run of *job*, which does not run."""
        if job.accumulate_key is not None:
            self.collector.hand_back(job)

    def salvage(self, job: Claimed, error: BaseException, *, loop: str) -> None:
        """
        Settle a job and those of its run as failed, unless they are settled.

        Everything that a job can do is caught elsewhere, so *error* is a bug of ours.
        The loop must live on, and the attempt is over.
        """
        logger.error("failed     loop=%s job=%d", loop, job.id, exc_info=error)
        try:
            self.hand_back_near(job)
            for each in (job, *(held.job for held in self.leases.others(job))):
                # In this order: what leaves the settler is no longer held.
                if self.settler.has(each):
                    continue
                if self.leases.get(each) is None and not self.leases.is_settled(each):
                    continue
                self.settler.put(Settlement(each, self._failed(each, error)))
        except BaseException:
            logger.exception("failed     loop=%s job=%d stays leased", loop, job.id)

    def _failed(self, job: Claimed, error: BaseException) -> Performed:
        try:
            options = find_task(job.task).resolve(job.queue, self.settings)
            return Performed(outcome_after(job, options, error), error)
        except Exception:
            return Performed(Retried(AGAIN), error)


@dataclass(slots=True, eq=False)
class Control(JobControl):
    """
    The JobControl of one job.

    Any thread may call it; a lock keeps two of them from settling the job both. A job
    that leads a run of many extends the leases of all, and is asked to stop when all of
    them are.
    """

    _services: JobServices
    _held: Held
    _prepared: Prepared
    _run: Run | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _has_ended: bool = False
    _report: Report | None = None
    _values: Values | None = None
    _acked: Performed | None = None
    has_word: bool = False
    word: BaseException | None = None
    is_settled: bool | None = None

    @property
    def job(self) -> Claimed:
        """The job, as it was claimed."""
        return self._held.job

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has asked the job to stop."""
        return (self._run or self._held).is_cancelled

    def when_cancelled(self, call: Callable[[], None]) -> None:
        """Call this when is_cancelled becomes true; see Held.when_cancelled()."""
        (self._run or self._held).when_cancelled(call)

    def extend(self, duration: timedelta | None) -> None:
        """Let the lease end no sooner than this from now; LeaseLost, WrongState."""
        if self._has_ended or self.has_word:
            raise has_ended(self.job.id)
        seconds = self._services.leases.lease_seconds
        if duration is not None:
            seconds = duration.total_seconds()
        self._services.reporter.extend(self._held, seconds)
        if self._run is not None and self._run.others:
            self._services.collector.extend(self._run.others, seconds)

    def report(self, progress: Mapping[str, Any]) -> None:
        """Hand a report to the reporter; returns at once."""
        with self._lock:
            if self._has_ended or self.has_word:
                raise has_ended(self.job.id)
            if self._report is None:
                self._report = Report(self._held)
            self._services.reporter.report(self._report, progress)

    def emit(self, values: Sequence[tuple[int, str]]) -> None:
        """Hand values to the reporter; returns at once. LeaseLost, WrongState."""
        with self._lock:
            if self._has_ended or self.has_word:
                raise has_ended(self.job.id)
            if self._values is None:
                self._values = Values(self._held)
            self._services.reporter.emit(self._values, values)

    def say(self, error: BaseException | None) -> None:
        """Settle the job now; returns when it is committed. LeaseLost, WrongState."""
        with self._lock:
            if self._has_ended or self.has_word:
                raise has_ended(self.job.id)
            self.has_word, self.word = True, error
        performed = after_word(self.job, self._prepared, error)
        self._take_last(performed)
        done = threading.Lock()
        done.acquire()
        word = Settlement(self.job, performed, done.release, goes_on=True)
        self._services.settler.put(word)
        _wait(word, done)
        self.is_settled = bool(word.is_written)
        if not word.is_written:
            raise LeaseLost(self.job.id, self.job.delivery)

    def ack_within(self, cursor: Cursor, performed: Performed) -> bool | None:
        """Write the ack of an atomic task in its own transaction; LeaseLost."""
        self._take_last(performed)
        self._acked = performed
        worker = self._services.leases.worker
        return ack_within(cursor, self.job, performed, worker=worker)

    def committed(self) -> None:
        """Tell what the transaction of ack_within() has settled."""
        assert self._acked is not None
        self.is_settled = True
        # Noted here and not by the settler, whose turn may come after finish().
        self._services.leases.goes_on(self.job)
        self._services.settler.put(Settlement(self.job, self._acked, committed=True))

    def is_applied(self) -> bool:
        """
        Find out whether the transaction of ack_within() was committed.

        Waits for as long as the lost connection's session may still commit it, and for
        a database that is away. On a connection of its own: that of the task is lost.
        """
        services = self._services
        name = f"pgqueue atomic {services.leases.worker}"
        link = Link(services.settings.database, name=name)
        # Of a task without an archive, a row that is away is all that there is to see.
        is_away = self._acked is not None and self._acked.leaves_no_trace
        failures = 0
        try:
            while True:
                try:
                    with link.cursor() as cursor:
                        leases = [(self.job.id, self.job.delivery)]
                        return bool(settle.applied(cursor, leases, is_away=is_away))
                except psycopg.Error as error:
                    failures += 1
                    logger.warning("unknown    job=%d error=%s", self.job.id, error)
                    link.drop()
                    time.sleep(backoff_seconds(failures))
        finally:
            link.drop()

    def close(self, performed: Performed) -> Settlement | None:
        """
        End the control; return what the caller hands to the settler.

        Returns:
            The outcome; None: it is written, and what came after it is handed over.
        """
        with self._lock:
            self._has_ended = True
        if performed.settled is None:
            self._take_last(performed)
            if self._acked is not None:
                # Rolled back, and what it has said last with it.
                performed.progress = performed.progress or self._acked.progress
                before = self._acked.emitted or []
                performed.emitted = before + (performed.emitted or [])
            return Settlement(self.job, performed)
        if performed.settled is False:
            if not self.has_word:
                # The transaction rolled back; nobody else has counted it as stale.
                settlement = Settlement(self.job, performed, committed=False)
                self._services.settler.put(settlement)
        elif is_noted(performed, has_word=self.has_word):
            self._services.settler.put(Settlement(self.job, performed))
        else:
            self._services.leases.ended(self.job)
        return None

    def _take_last(self, performed: Performed) -> None:
        """Put what the job has said last, and is not written, to its outcome."""
        reporter = self._services.reporter
        if self._report is not None:
            performed.progress = reporter.take(self._report)
        if self._values is not None:
            performed.emitted = reporter.take_emitted(self._values)


def _wait(word: Settlement, done: threading.Lock) -> None:
    """
    Wait until *word* is settled, whatever is raised in this thread meanwhile.

    Half-way, nobody could tell whether it is written.
    """
    interrupted: BaseException | None = None
    while not word.is_done:
        try:
            done.acquire(timeout=LOOK_SECONDS)
        except BaseException as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted
