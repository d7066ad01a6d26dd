"""
Settler: writes outcomes, as many at once as are waiting anyway.

The tenth hop of a job's life. Batching is natural: while one write is under way,
finished jobs gather, and the next write takes them all. There is no timer, so an idle
system acks at once; but a thread that is about to run another short job says so, and
its acks share one write.

An outcome whose write got no answer is written again when the database is back; what
then no longer matches is looked up, because the first write may have been applied.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

import psycopg

from django_pgqueue import telemetry
from django_pgqueue.bounds import FAIR
from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.queues import lease, settle
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.settle import Ended
from django_pgqueue.queues.waited import ids_of
from django_pgqueue.queues.waited import tell as tell_ended
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.outcome import Performed, Retried
from django_pgqueue.tasks.settlement import (
    WRITES,
    ended,
    kind_of,
    tell,
    tells_success,
    write,
    write_last,
)
from django_pgqueue.worker.lease.leases import Leases
from django_pgqueue.worker.service import Portion, Service, is_broken, nothing
from django_pgqueue.worker.tally import Tally

# How long an id is kept at least, and at most twice as long: who waits still says so
# again before.
KEPT_SECONDS = 45.0

# A stranger who announces made-up ids fills this much and no more, twice. Who waits for
# what is left out finds it by looking.
IDS_MAX = 50_000


class Waited:
    """
    A bounded set of ids. The listener fills it, and the settler asks it.

    There are two: of jobs whose end somebody waits for, and of those whose output.
    Empty, as it is nearly always, it is false.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Since the last turn, and before it.
        self._new: set[int] = set()
        self._old: set[int] = set()
        self._turned_at = clock()

    def __bool__(self) -> bool:
        return bool(self._new or self._old)

    def note(self, payload: str) -> None:
        """Keep the ids of an announcement."""
        ids = ids_of(payload)
        with self._lock:
            self._turn()
            if len(self._new) + len(ids) <= IDS_MAX:
                self._new |= ids

    def take(self, ids: Collection[int]) -> set[int]:
        """Return those of *ids* that somebody waits for, and forget them."""
        found = self.among(ids)
        with self._lock:
            self._new -= found
            self._old -= found
        return found

    def among(self, ids: Collection[int]) -> set[int]:
        """Return those of *ids* that somebody waits for."""
        if not self:
            return set()
        with self._lock:
            self._turn()
            return {n for n in ids if n in self._new or n in self._old}

    def _turn(self) -> None:
        """Forget what was said too long ago. Under the lock."""
        now = self._clock()
        turns = (now - self._turned_at) // KEPT_SECONDS
        if turns:
            self._old = self._new if turns == 1 else set()
            self._new = set()
            self._turned_at = now


logger = logging.getLogger("django_pgqueue.worker")

BATCH_ROWS_MAX = 1_000
WAIT_SECONDS = 1.0

# Outcomes that are put soon wait for one another, up to so many.
SOON_ROWS = 64

# A write that waits longer for a lock is given up. Those of the batch that nobody has
# locked are written, the others put aside for so long, and then ever longer; after
# HELD_TOLD_SECONDS the log says who has them.
LOCK_SECONDS, PROBING_SECONDS_MAX = 0.2, 2.0
HELD_SECONDS, HELD_SECONDS_MAX = 0.1, 1.0
HELD_TOLD_SECONDS = 5.0

# By kind; the statements of this loop alone.
KINDS = dict(WRITES)

# How nearly all jobs end.
DONE = frozenset({"ack", "forget"})

# Whose rows go to the archive.
ARCHIVED = frozenset({"ack", "expire", "cancel"})

# After which nothing comes any more.
FINAL = DONE | {"dead", "expire", "cancel"}

# After which others may run a job at once.
FOR_OTHERS = frozenset({"release", "retry"})

# By kind: how an attempt ended, as it is counted for those who watch.
ENDS = {
    "ack": "succeeded",
    "forget": "succeeded",
    "retry": "retried",
    "dead": "dead",
    "expire": "expired",
    "cancel": "cancelled",
}


@dataclass(slots=True, eq=False)
class Settlement:
    """One outcome on its way to the database."""

    job: Claimed
    performed: Performed | None  # None: hand the job back, it never started.
    # Once this is settled: what is called, and the slot that is free.
    done: Callable[[], None] | None = None
    slot: int | None = None
    goes_on: bool = False  # Its task does, after this.
    # Nothing to be written any more: True: the job's own transaction was committed;
    # False: it was rolled back, because the lease was lost.
    committed: bool | None = None
    written: Ended | None = None
    is_written: bool | None = None  # False: stale. None: not yet, or refused.
    is_done: bool = False
    # Since when it waits for somebody's lock; whether the log has said so.
    held_at: float | None = None
    is_held_told: bool = False

    @property
    def kind(self) -> str:
        """Which statement writes it."""
        if self.performed is None:
            return "release"
        if self.committed is not None:
            return "atomic"
        return kind_of(self.performed)


class Settler(Service):
    """Takes outcomes from the threads and writes them in batches."""

    name = "settler"

    def __init__(
        self,
        link: Link,
        leases: Leases,
        tally: Tally | None = None,
    ) -> None:
        super().__init__(link)
        # Told of each attempt that ended; None: no task has a circuit breaker.
        self.on_ended: Callable[[Claimed, Performed], None] | None = None
        # Counts what is settled.
        self._tally = Tally() if tally is None else tally
        self._leases = leases
        # Told in how many seconds a job of ours becomes visible again.
        self.on_retry: Callable[[float], None] = nothing
        # Told of lanes whose jobs were settled.
        self.on_freed: Callable[[Collection[str]], None] = nothing
        # Told of queues whose jobs were settled.
        self.on_left: Callable[[Collection[str]], None] = nothing
        # An item leaves the inbox only when it is in the batch.
        self._inbox: deque[Settlement] = deque()
        self._batch: list[Settlement] = []
        # Outcomes whose rows somebody has locked, and until when they rest.
        self._held: list[Settlement] = []
        self._held_until = 0.0
        # Queues whose jobs other workers may run, and have not been told of.
        self._unwoken: set[str] = set()
        # For which jobs somebody waits; and which have ended, and were not told of.
        self.waited = Waited()
        self._untold: set[int] = set()
        self._wakeup: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_waiting = False
        # Told of the slots of what was settled.
        self.on_settled: Callable[[list[int]], None] = nothing
        self._slots: list[int] = []
        # Called once after the next write, when somebody waits for it.
        self.on_written: Callable[[], None] | None = None
        # Whether the batch at hand may have been written without an answer.
        self._is_uncertain = False
        self._portion = Portion(BATCH_ROWS_MAX)
        self._idle = threading.Condition()
        self._waiting_for_idle = 0
        self.counts: Counter[str] = Counter()

    def put(self, settlement: Settlement) -> None:
        """
        Hand over an outcome; returns at once.

        That of a job which is settled while its task goes on is only noted.
        """
        self.put_soon(settlement)
        self.wake_up()

    def put_soon(self, settlement: Settlement) -> None:
        """
        Hand over an outcome that may wait for a few others, until wake_up().

        For a thread that is about to run another short job, or to wake us up.
        """
        performed = settlement.performed
        if performed is not None and self._leases.is_settled(settlement.job):
            performed.settled = True
        if self.on_ended is not None and performed is not None:
            self.on_ended(settlement.job, performed)
        self._inbox.append(settlement)
        if self._is_waiting and len(self._inbox) >= SOON_ROWS:
            self.wake_up()

    def wake_up(self) -> None:
        """Let what was handed over be written now."""
        # Once is enough; two threads that both do it do no harm.
        if self._is_waiting and self._inbox:
            self._is_waiting = False
            self._wakeup.put(None)

    @property
    def is_kept_waiting(self) -> bool:
        """Whether something was handed over, and wake_up() not called since."""
        return self._is_waiting and bool(self._inbox)

    def has(self, job: Claimed) -> bool:
        """Whether an outcome of this very delivery was handed over and is not done."""
        # In this order: an item is where it goes before it leaves where it was, and it
        # comes back into the batch from those put aside.
        waiting = [*self._inbox, *self._batch, *self._held, *self._batch]
        return any(item.job is job for item in waiting)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until everything handed over is settled; False when it is not."""
        if self._is_idle() or seconds <= 0:
            return self._is_idle()
        with self._idle:
            self._waiting_for_idle += 1
            try:
                return self._idle.wait_for(self._is_idle, seconds)
            finally:
                self._waiting_for_idle -= 1

    def _is_idle(self) -> bool:
        # In the order of has().
        return not (self._inbox or self._is_busy or self._held or self._batch)

    @property
    def _is_busy(self) -> bool:
        return bool(self._batch or self._unwoken or self._untold)

    def stop(self) -> None:
        """End the loop; call it when everything is settled, or given up."""
        super().stop()
        self._wakeup.put(None)

    def tick(self) -> float:
        """Write what is waiting."""
        if not self._is_busy:
            self._gather()
        if self._batch or self._held:
            try:
                self._write_batch()
                self._write_held()
            finally:
                self._free_slots()
        if self._untold:
            self._notify(tell_ended, self._untold)
            self._untold = set()
        if self._unwoken:
            self._notify(wake.wake, self._unwoken)
            self._unwoken = set()
        if self._waiting_for_idle:
            with self._idle:
                self._idle.notify_all()
        return 0.0

    def _rest(self, pause: float) -> None:
        """Wait up to a second for the first outcome."""
        super()._rest(pause)
        if not (self._inbox or self._is_busy):
            self._wait_for_wakeup()

    def _gather(self) -> None:
        inbox, batch = self._inbox, self._batch
        for _ in range(min(len(inbox), BATCH_ROWS_MAX)):
            batch.append(inbox[0])
            inbox.popleft()

    def _wait_for_wakeup(self) -> None:
        self._is_waiting = True
        # Asked after that was said: whoever comes from here on sees it.
        if not self._inbox:
            seconds = WAIT_SECONDS
            if self._held:
                seconds = max(self._held_until - time.monotonic(), 0.001)
            with contextlib.suppress(queue.Empty):
                self._wakeup.get(timeout=seconds)
        self._is_waiting = False

    def _write_batch(self) -> None:
        by_kind: defaultdict[str, list[Settlement]] = defaultdict(list)
        for item in self._batch:
            by_kind[item.kind].append(item)
        for kind, items in by_kind.items():
            rows = self._portion.rows
            for start in range(0, len(items), rows):
                self._write_some(kind, items[start : start + rows])
        self._is_uncertain = False

    def _write_some(
        self, kind: str, items: list[Settlement], *, were_held: bool = False
    ) -> None:
        try:
            if were_held:
                self._write_free(kind, items)
            else:
                self._write(kind, items)
        except Exception as error:
            if isinstance(error, psycopg.errors.QueryCanceled):
                self._portion.shrink(len(items))
            if (
                isinstance(error, psycopg.errors.LockNotAvailable)
                and not self._is_uncertain
            ):
                self._write_some(kind, items, were_held=True)
                return
            if _is_lost(self.link, error):
                self._is_uncertain = True
                raise
            left = [item for item in items if item in self._batch]
            self._write_one_by_one(kind, left, error)

    def _write_free(
        self, kind: str, items: list[Settlement], until: float | None = None
    ) -> None:
        """Write those which nobody has locked, and put the others aside."""
        until = until or time.monotonic() + PROBING_SECONDS_MAX
        ids = [item.job.id for item in items]
        try:
            with self.link.steady_cursor() as cursor:
                held_up = settle.held_up(cursor, worker=self._leases.worker, ids=ids)
        except psycopg.errors.LockNotAvailable:
            held_up = set(ids)  # Somebody has locked the table.
        self._hold([item for item in items if item.job.id in held_up])
        free = [item for item in items if item.job.id not in held_up]
        if not free:
            return
        try:
            self._write(kind, free)
        except psycopg.errors.LockNotAvailable:
            # For what a trigger locks besides.
            half = len(free) // 2
            if not half or time.monotonic() > until:
                self._hold(free)
                return
            self._write_free(kind, free[:half], until)
            self._write_free(kind, free[half:], until)

    def _hold(self, items: list[Settlement]) -> None:
        """Put outcomes aside for as long as they have waited, within bounds."""
        if not items:
            return
        now = time.monotonic()
        for item in items:
            item.held_at = item.held_at or now
        self._held += items
        self._batch = [item for item in self._batch if item not in items]
        pause = now - min(item.held_at or now for item in items)
        pause = min(max(pause, HELD_SECONDS), HELD_SECONDS_MAX)
        self._held_until = min(self._held_until or now + pause, now + pause)

    def _write_held(self) -> None:
        """Look again at what was put aside, when it has rested."""
        now = time.monotonic()
        if not self._held or now < self._held_until:
            return
        self._held_until = 0.0
        untold = [
            item
            for item in self._held
            if not item.is_held_told and now - (item.held_at or now) > HELD_TOLD_SECONDS
        ]
        if untold:
            self._tell_held(untold)
        held = self._held
        self._batch += held
        self._held = []
        for kind in {item.kind for item in held}:
            items = [item for item in held if item.kind == kind]
            self._write_some(kind, items, were_held=True)

    def _tell_held(self, items: list[Settlement]) -> None:
        with self.link.cursor() as cursor:
            pids = settle.holders(cursor, [item.job.id for item in items])
        first = min(items, key=lambda item: item.held_at or 0.0)
        logger.warning(
            "held up    jobs=%d first=%d task=%s pid=%s: for %.0f s a transaction has "
            "locked their rows or their workflow; they are settled when it ends",
            len(items),
            first.job.id,
            first.job.task,
            ",".join(map(str, pids)) or "?",
            time.monotonic() - (first.held_at or 0.0),
        )
        for item in items:
            item.is_held_told = True

    def _write(
        self, kind: str, items: list[Settlement], *, has_last: bool = True
    ) -> None:
        if kind == "atomic":
            if self.waited:
                done = {item.job.id for item in items if item.committed}
                self._untold |= self.waited.take(done)
            for item in items:
                self._finish(item, "ack", is_stale=not item.committed)
            self._forget(items)
            return
        if kind == "release":
            matched = self._release(items)
        else:
            if has_last:
                self._write_last(items)
            matched = self._settle(kind, items)
        if self._is_uncertain and len(matched) < len(items):
            missing = [item.job for item in items if item.job.id not in matched]
            leases = [(job.id, job.delivery) for job in missing]
            with self.link.cursor() as cursor:
                is_away = kind == "forget"
                matched |= settle.applied(cursor, leases, is_away=is_away)
        self._unwoken |= _for_others(kind, items, matched)
        if self.waited:
            self._untold |= self.waited.take(_ended(kind, items, matched))
        if kind in DONE and len(matched) == len(items) and not tells_success():
            self._finish_silently(items)
        else:
            for item in items:
                self._finish(item, kind, is_stale=item.job.id not in matched)
        self._forget(items)

    def _finish_silently(self, items: list[Settlement]) -> None:
        """As _finish(), of jobs that are done as it should be and nobody is told."""
        self.counts["ack"] += len(items)
        for item in items:
            self._count(item, "succeeded")
            item.is_written = True
            self._release_waiting(item)

    def _notify(self, send: Callable[[Any, Any], None], whom: Collection[Any]) -> None:
        """
        Tell others of jobs that any of them may run now, or that have ended.

        What they are was written before: a connection that dies in between must not
        leave them to the poll. So they are forgotten only when they were told.
        """
        with self.link.cursor() as cursor:
            try:
                send(cursor, whom)
            except psycopg.Error as error:
                # Not whatever may pass, as a full queue of notifications does: no
                # outcome would be written until then.
                if is_broken(self.link, error):
                    raise
                names = ",".join(map(str, sorted(whom)))
                why = "the database refused to notify"
                if send is tell_ended:
                    logger.warning("untold     jobs=%s: %s: %s", names, why, error)
                else:
                    logger.warning("unwoken    queues=%s: %s: %s", names, why, error)

    def _forget(self, items: list[Settlement]) -> None:
        """Take settled items out of the batch, and free their slots and lanes."""
        self._free_lanes(items)
        self.on_left({item.job.queue for item in items})
        self._free_slots()
        if len(items) == len(self._batch):
            self._batch = []
        else:
            self._batch = [item for item in self._batch if not item.is_done]

    def _free_lanes(self, items: list[Settlement]) -> None:
        # Of a fair lane nobody waits for a place.
        lanes = {
            item.job.lane
            for item in items
            if item.job.lane is not None and item.job.lane_policy != FAIR
        }
        if lanes:
            self.on_freed(lanes)

    def _free_slots(self) -> None:
        slots, self._slots = self._slots, []
        if slots:
            self.on_settled(slots)
        call, self.on_written = self.on_written, None
        if call is not None:
            call()

    def _write_last(self, items: list[Settlement]) -> None:
        """Write what jobs have said last, before their rows move."""
        last = [
            (item.job, item.performed)
            for item in items
            if item.performed is not None
            and (item.performed.progress is not None or item.performed.emitted)
        ]
        if last:
            with self.link.cursor() as cursor:
                write_last(cursor, last, worker=self._leases.worker)

    def _settle(self, kind: str, items: list[Settlement]) -> set[int]:
        rows = [self._row(item) for item in items]
        are_plain = {row.result is None and row.error is None for row in rows}
        # Two statements, then: what the first has written would look stale when the
        # second meets a lock, and both are sent again.
        is_whole = kind in ARCHIVED and len(are_plain) > 1
        return write(
            KINDS[kind],
            rows,
            worker=self._leases.worker,
            cursor=self._whole_cursor if is_whole else self.link.steady_cursor,
            make_day=self._make_day,
        )

    @contextlib.contextmanager
    def _whole_cursor(self) -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
        with self.link.connection.transaction(), self.link.steady_cursor() as cursor:
            yield cursor

    def _make_day(self) -> list[date]:
        with self.link.transaction() as cursor:
            return ARCHIVE.make(cursor)

    def _row(self, item: Settlement) -> Ended:
        if item.written is None:
            job, performed = item.job, item.performed
            assert performed is not None
            waited = 0.0
            if performed.error is not None:
                held = self._leases.get(job)
                waited = 0.0 if held is None else time.monotonic() - held.claimed_at
            try:
                item.written = ended(
                    job, performed, worker=self._leases.worker, waited=waited
                )
            except Exception:
                # Code of the error's own class was called, and raised.
                logger.exception("failed     loop=settler job=%d: its error", job.id)
                bare = Performed(performed.outcome, None, performed.ran_seconds)
                item.written = ended(
                    job, bare, worker=self._leases.worker, waited=waited
                )
        return item.written

    def _release(self, items: list[Settlement]) -> set[int]:
        leases = [(i.job.id, i.job.delivery, i.job.due_at) for i in items]
        with self.link.steady_cursor() as cursor:
            released = lease.release(cursor, worker=self._leases.worker, leases=leases)
        self._unwoken |= {name for _, name in released}
        return {job_id for job_id, _ in released}

    def _write_one_by_one(
        self, kind: str, items: list[Settlement], error: Exception
    ) -> None:
        """One row that cannot be written must not keep the others unsettled."""
        for item in items:
            try:
                if len(items) > 1:
                    self._write(kind, [item], has_last=False)
                    continue
            except psycopg.errors.LockNotAvailable:
                self._hold([item])
                continue
            except Exception as refused:
                if _is_lost(self.link, refused):
                    raise
                error = refused
            try:
                self._write_bare(kind, item, error)
            except Exception as refused:
                if _is_lost(self.link, refused):
                    raise
                self._give_up(kind, item, refused)

    def _write_bare(self, kind: str, item: Settlement, error: Exception) -> None:
        """Settle without the result and the error text that PostgreSQL refused."""
        logger.error(
            "refused    job=%d task=%s: the database refused what its %s would store; "
            "settled without it: %s",
            item.job.id,
            item.job.task,
            kind,
            error,
        )
        if item.performed is None:
            # Handed back by another statement, which changes less of the row.
            item.performed = Performed(Retried(timedelta(0), gives_attempt_back=True))
            self._write("retry", [item], has_last=False)
            return
        row = self._row(item)
        item.written = replace(row, result=None, error=None, superseded_by=None)
        self._write(kind, [item], has_last=False)

    def _give_up(self, kind: str, item: Settlement, error: Exception) -> None:
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
        try:
            if kind == "note":
                self._tell_note(item)
            elif is_stale:
                self.counts["stale"] += 1
                self._count(item, "stale")
                telemetry.stale(registry.tasks.get(item.job.task), item.job, kind=kind)
            else:
                self._tell(item, kind)
        except BaseException:
            # It is written: who was to hear of it cannot undo that.
            logger.exception("failed     loop=settler job=%d: telling", item.job.id)
        self._release_waiting(item)

    def _release_waiting(self, item: Settlement) -> None:
        if item.goes_on and item.is_written:
            self._leases.goes_on(item.job)
        elif item.performed is not None and item.performed.settled:
            self._leases.ended(item.job)
        self._leases.drop(item.job)
        item.is_done = True
        if item.done is not None:
            # RuntimeError: the event loop that would hear of it is closed.
            with contextlib.suppress(RuntimeError):
                item.done()
        if item.slot is not None:
            self._slots.append(item.slot)

    def _tell(self, item: Settlement, kind: str) -> None:
        job, performed = item.job, item.performed
        if performed is None:
            return
        holder = None if item.written is None else item.written.superseded_by
        self._count(item, ENDS[kind] if holder is None else "superseded")
        if kind in DONE:
            self.counts["ack"] += 1
        elif holder is not None:
            self.counts["cancel"] += 1
        else:
            self.counts[kind] += 1
            if isinstance(performed.outcome, Retried):
                self.on_retry(performed.outcome.delay.total_seconds())
        tell(job, performed, holder=holder)

    def _count(self, item: Settlement, end: str) -> None:
        performed = item.performed
        if performed is None:
            return
        outcome, job = performed.outcome, item.job
        if end == "retried" and isinstance(outcome, Retried) and not outcome.is_failure:
            end = "postponed"
        self._tally.note(
            job, end, performed.ran_seconds, is_known=job.task in registry.tasks
        )

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


def _is_lost(link: Link, error: Exception) -> bool:
    """Whether the write may be tried again as it is, on another connection."""
    if not isinstance(error, psycopg.Error):
        # A row of ours that cannot even be sent: nothing else is wrong.
        if not link.is_idle:
            link.drop()
        return False
    return isinstance(
        error, (psycopg.OperationalError, psycopg.InterfaceError)
    ) or is_broken(link, error)


def _ended(kind: str, items: list[Settlement], matched: set[int]) -> set[int]:
    """Return the jobs that nothing comes after any more."""
    if kind in FINAL:
        return matched
    return {
        item.job.id
        for item in items
        if item.written is not None and item.written.superseded_by is not None
    }


def _for_others(kind: str, items: list[Settlement], matched: set[int]) -> set[str]:
    """Return the queues of jobs that any worker may run now, as after a stop."""
    if kind not in FOR_OTHERS:
        return set()
    return {
        item.job.queue
        for item in items
        if item.job.id in matched
        and (
            item.performed is None
            or (
                isinstance(item.performed.outcome, Retried)
                and not item.performed.outcome.delay
            )
        )
    }
