"""
Leases: the jobs that this process holds, from the claim until the settle; and slots:
which of them run at this moment.

Shared by all loops of a process. Single operations on a dict are atomic in CPython, so
no lock is taken on the way of a job.
"""

from __future__ import annotations

import ctypes
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.context import BaseContext
from typing import Any

import psycopg

from django_pgqueue.conf import Settings
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import lease
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.outcome import Cancelled, Performed
from django_pgqueue.tasks.prepare import refuse
from django_pgqueue.worker.service import Portion

logger = logging.getLogger("django_pgqueue.worker")

# Rows renewed in one statement.
RENEW_ROWS_MAX = 1_000

# A lease that was not renewed is asked for again this soon.
ASK_AGAIN_SECONDS = 0.5


def _ids(leases: list[Held]) -> list[tuple[int, int]]:
    return [(held.job.id, held.job.delivery) for held in leases]


# Of a slot: job id, delivery.
FIELDS = 2


@dataclass(slots=True, eq=False)
class Held:
    """One lease, by this process's own clock, which is monotonic."""

    job: Claimed
    # Before the claim was sent, so that our end of the lease is never later than the
    # database's.
    claimed_at: float
    valid_until: float
    is_cancelled: bool = False  # Somebody has asked the job to stop.
    is_lost: bool = False
    # Since when its row was found to be no longer ours; None: it is.
    missing_since: float | None = None
    _on_cancel: Callable[[], None] | None = None

    def renewed(self, sent_at: float, seconds: float) -> None:
        """Note a renewal for *seconds* that was sent at *sent_at*."""
        self.valid_until = max(self.valid_until, sent_at + seconds)

    def when_cancelled(self, call: Callable[[], None]) -> None:
        """
        Call this once when somebody asks the job to stop; at once if it was asked.

        Called in the heartbeat's thread: it must return at once, and not raise.
        """
        self._on_cancel = call
        if self.is_cancelled:
            self._call()

    def cancel(self) -> None:
        """Note that somebody has asked the job to stop."""
        self.is_cancelled = True
        self._call()

    def _call(self) -> None:
        # Both threads may come here; the second finds None.
        with LOCK:
            call, self._on_cancel = self._on_cancel, None
        if call is not None:
            call()


# Of the rare moment when a job is asked to stop; one for all.
LOCK = threading.Lock()


class Leases:
    """Every lease of this process, by job id; and what runs on without one."""

    def __init__(self, lease_seconds: float, worker: str) -> None:
        self.lease_seconds = lease_seconds
        self.worker = worker
        self._portion = Portion(RENEW_ROWS_MAX)
        self._held: dict[int, Held] = {}
        # Jobs that were settled while their task goes on: by its own word, or before
        # it was called. They need no lease, but a stop waits for them.
        self._after: dict[int, Claimed] = {}
        # Of runs of many jobs: the others, by the id of the job that leads.
        self._others: dict[int, list[Held]] = {}
        # Leases that were taken over while their jobs run on, by job id.
        self._lost: dict[int, Held] = {}
        # No lease runs out before this, by our clock.
        self._lapse_at = math.inf
        # How many there have been so far.
        self.taken = 0

    def add(self, jobs: list[Claimed], sent_at: float) -> list[Claimed]:
        """
        Note what a claim that was sent at *sent_at* returned.

        Returns:
            The jobs whose earlier delivery is still held here. They are not noted, and
            must not start: the caller hands them back.
        """
        known, seconds = self._held, self.lease_seconds
        refused = [job for job in jobs if job.id in known]
        for job in refused:
            self.lose(known[job.id])
        fresh = [job for job in jobs if job not in refused] if refused else jobs
        end = sent_at + seconds
        known.update(
            [(job.id, Held(job, sent_at, end, job.cancel_requested)) for job in fresh]
        )
        self.taken += len(fresh)
        self._lapse_at = min(self._lapse_at, end)
        return refused

    def lapsed(self, now: float) -> list[Held]:
        """
        Return the leases that have run out by our clock, but for those known as lost.

        Ours is never later than the database's end, so what is not among them cannot
        be claimed by anybody.
        """
        if now < self._lapse_at:
            return []
        held = [each for each in self.all() if not each.is_lost]
        # Another thread may add one at this moment; this end bounds what that costs.
        ends = (each.valid_until for each in held)
        self._lapse_at = min(ends, default=now + self.lease_seconds)
        return [each for each in held if each.valid_until <= now]

    def lose(self, held: Held) -> None:
        """Note that a lease was taken over: its job runs on, and is not ours."""
        held.is_lost = True
        if self._held.get(held.job.id) is held:
            self._lost[held.job.id] = held

    def lost(self) -> list[Held]:
        """Return the leases that were taken over and whose jobs still run here."""
        return list(self._lost.values()) if self._lost else []

    def get(self, job: Claimed) -> Held | None:
        """Return the lease of this very delivery, or None."""
        held = self._held.get(job.id)
        return held if held is not None and held.job is job else None

    def admit(
        self, job: Claimed, now: float, settings: Settings
    ) -> Held | Performed | None:
        """
        Return the lease that a job may start with, when its turn has come.

        Or how it ends, as it may not start; None: handed back. Its lease ran out while
        it waited here, and somebody else may be running it by now: the fence of the
        release knows.
        """
        held = self.get(job)
        if held is None or now >= held.valid_until:
            return None
        if held.is_cancelled:
            # It was asked to stop after the claim.
            return Performed(Cancelled())
        return refuse(job, settings) or held

    def drop(self, job: Claimed) -> bool:
        """Forget a lease that was settled or lost; False when it was not held."""
        held = self._held.get(job.id)
        if held is None or held.job is not job:
            return False
        if self._others:
            self._others.pop(job.id, None)
        if self._lost:
            self._lost.pop(job.id, None)
        return self._held.pop(job.id, None) is not None

    def lead(self, job: Claimed, others: list[Held]) -> None:
        """Note which jobs are in the run that *job* leads, until it is settled."""
        self._others[job.id] = others

    def others(self, job: Claimed) -> list[Held]:
        """Return the other jobs of the run that *job* leads."""
        return list(self._others.get(job.id, ()))

    def load(self) -> int:
        """Return how many jobs are held, those of one run counted as one."""
        others = list(self._others.values()) if self._others else ()
        return len(self) - sum(map(len, others))

    def apart(self) -> list[Held]:
        """Return the leases held at this moment, of each run the leading one."""
        if not self._others:
            return self.all()
        others = {id(held) for run in list(self._others.values()) for held in run}
        return [held for held in self.all() if id(held) not in others]

    def all(self) -> list[Held]:
        """Return the leases held at this moment."""
        return list(self._held.values())

    def goes_on(self, job: Claimed) -> None:
        """Note that the task of a job goes on although the job is settled."""
        self._after[job.id] = job

    def is_settled(self, job: Claimed) -> bool:
        """Whether the task of this very delivery goes on after its settle."""
        return bool(self._after) and self._after.get(job.id) is job

    def settled(self) -> list[Claimed]:
        """Return the jobs that are settled while their tasks go on."""
        return list(self._after.values())

    def ended(self, job: Claimed) -> None:
        """Forget a job whose task went on after its settle."""
        if self.is_settled(job):
            self._after.pop(job.id, None)

    def renew(self, link: Link, old: list[Held]) -> bool:
        """Renew *old* leases on *link*; True when some must be asked for again."""
        # All of them, however many: the next time may be too late for short leases.
        ask_again = False
        rows = min(self._portion.rows, RENEW_ROWS_MAX)
        for start in range(0, len(old), rows):
            some = old[start : start + rows]
            try:
                ask_again |= self._renew_some(link, some)
            except psycopg.errors.QueryCanceled:
                self._portion.shrink(len(some))
                raise
        return ask_again

    def _renew_some(self, link: Link, old: list[Held]) -> bool:
        length = timedelta(seconds=self.lease_seconds)
        sent_at = time.monotonic()
        with link.cursor() as cursor:
            renewed = lease.renew(
                cursor, worker=self.worker, leases=_ids(old), lease=length
            )
        for held in old:
            if held.job.id in renewed:
                held.renewed(sent_at, self.lease_seconds)
                held.missing_since = None
        missing = [held for held in old if held.job.id not in renewed]
        return bool(missing) and self._look_after(link, missing)

    def _look_after(self, link: Link, missing: list[Held]) -> bool:
        """Say which leases are lost; True when some others were not renewed."""
        with link.cursor() as cursor:
            ours = lease.still_held(cursor, worker=self.worker, leases=_ids(missing))
        now = time.monotonic()
        ask_again = False
        for held in missing:
            if self.get(held.job) is not held:
                continue  # Settled meanwhile.
            if held.job.id in ours:
                # Only locked, by whomever. However long that lasts, it is not lost.
                held.missing_since = None
                ask_again = True
            elif _is_lost(held, now):
                self.lose(held)
                logger.warning(
                    "lost       job=%d task=%s delivery=%d: its lease was taken over "
                    "while it runs here",
                    held.job.id,
                    held.job.task,
                    held.job.delivery,
                )
            else:
                ask_again = True
        return ask_again

    def __len__(self) -> int:
        return len(self._held) + len(self._after)


def _is_lost(held: Held, now: float) -> bool:
    # The settler may have written its outcome, and not have the answer yet. Then the
    # lease is dropped in a moment.
    if held.missing_since is None:
        held.missing_since = now
    waited = now - held.missing_since
    return now >= held.valid_until and waited >= ASK_AGAIN_SECONDS


class Slots:
    """
    What each thread and coroutine is running, in memory that outlives the process.

    The supervisor makes the table before it starts a child and reads it when the child
    is dead. So it knows at once which jobs were running (a crash for each) and which
    were only claimed (handed back as if never claimed), without asking anybody. One
    (job id, delivery) for each; id 0: it is idle.
    """

    def __init__(self, context: BaseContext, threads: int) -> None:
        self._cells: Any = context.RawArray(ctypes.c_longlong, threads * FIELDS)
        # When the job of each should have ended, by the monotonic clock; 0: whenever.
        self._limits: Any = context.RawArray(ctypes.c_double, threads)
        self._stopped: Any = context.RawValue(ctypes.c_bool, False)
        # When the process last tried to start, by the monotonic clock; 0: not yet.
        self._tried_at: Any = context.RawValue(ctypes.c_double, 0.0)
        self._ready: Any = context.RawValue(ctypes.c_bool, False)

    def note_try(self) -> None:
        """Note that the process is about to connect, for the first time or again."""
        self._tried_at.value = time.monotonic()

    def note_ready(self) -> None:
        """Note that the process has started."""
        self._ready.value = True

    def hangs_since(self, started_at: float) -> float | None:
        """Return since when the process, of that age, starts; None: it has started."""
        return None if self._ready.value else max(started_at, self._tried_at.value)

    def note_stop(self) -> None:
        """
        Note that the process ends because it was told to, in a moment.

        Without this, an exit status says nothing: a job may call os._exit(0).
        """
        self._stopped.value = True

    @property
    def has_stopped(self) -> bool:
        """Whether note_stop() was called."""
        return bool(self._stopped.value)

    def enter(self, thread: int, job_id: int, delivery: int) -> None:
        """Note that *thread* is about to run a job."""
        cells, place = self._cells, thread * FIELDS
        # The id last: a reader never sees it with another job's delivery.
        cells[place] = 0
        cells[place + 1] = delivery
        cells[place] = job_id

    def leave(self, thread: int) -> None:
        """Note that *thread* has settled its job, or handed it to the settler."""
        self._cells[thread * FIELDS] = 0

    def limit(self, thread: int, timeout_seconds: float | None) -> None:
        """Note that the job of *thread* is given so much time; None: it has ended."""
        self._limits[thread] = (
            0.0 if timeout_seconds is None else time.monotonic() + timeout_seconds
        )

    def late_job(self, thread: int, seconds: float) -> int | None:
        """Return the job of *thread* if it is past its timeout by so many seconds."""
        until, job_id = self._limits[thread], self._cells[thread * FIELDS]
        is_late = until and time.monotonic() > until + seconds
        return job_id if is_late and job_id else None

    def running(self) -> list[tuple[int, int]]:
        """Return (id, delivery) of every job that is marked as running."""
        cells = list(self._cells)
        pairs = zip(cells[::FIELDS], cells[1::FIELDS], strict=True)
        return [(job_id, delivery) for job_id, delivery in pairs if job_id]
