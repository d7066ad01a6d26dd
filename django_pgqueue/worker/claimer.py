"""
Claimer: asks for as many jobs as can start soon.

The sixth hop of a job's life. A notification never makes it act at once in the
listener's thread: it sets a flag, and this loop runs at its own pace.

While a queue is drained, claims start at floors, so that they do not walk over what is
finished. A look after a wake, a re-check and the poll do without: a transaction may
commit rows that became visible earlier, and a claim that rolled back gives rows back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import claim as claims
from django_pgqueue.queues.claim import Claimed, Line
from django_pgqueue.worker.leases import Leases
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.service import Service
from django_pgqueue.worker.wakes import Wakes

# After running dry, looks that catch what coalesced wakes, and crashes between a
# commit and its NOTIFY, leave out; and rows that were locked and rolled back.
RECHECK_SECONDS = (0.015, 0.06, 0.25)

# What became due between a look that found nothing and the question what is due next.
# Longer than either takes; a row that somebody keeps locked is looked for this long.
JUST_NOW = timedelta(seconds=5)

# Wakes that find nothing make the next one wait: this long at first, doubling up to
# the longest. So a flood of foreign notifications costs few claims.
EMPTY_WAKE_SECONDS_MIN, EMPTY_WAKE_SECONDS_MAX = 0.004, 0.25

# While one line keeps us busy, others are looked for this often: their floors join in,
# and from then on lines of equal priority take turns.
SHARE_SECONDS = 0.1

# A full look that takes longer than this is dear. Several in a row mean that vacuum is
# held back, rather than that one waited for a lock or a busy processor: from then on
# they are rationed to a tenth of the loop's time, though never fewer than one in a poll
# interval, until one is cheap again.
DEAR_SECONDS = 0.01
DEAR_LOOKS = 3
RATION = 9.0


class Claimer(Service):
    """Leases jobs and puts them into the executor's buffer."""

    name = "claimer"

    def __init__(
        self,
        link: Link,
        *,
        worker: str,
        options: WorkerOptions,
        wakes: Wakes,
        leases: Leases,
        room: Callable[[], int],
        put: Callable[[list[Claimed]], None],
    ) -> None:
        super().__init__(link)
        self._worker = worker
        self._options = options
        self._poll_seconds = options.settings.poll_interval_seconds
        self._wakes = wakes
        self._leases = leases
        self._room = room
        self._put = put
        self._queues: list[str] = []
        self._paused: set[str] = set()
        self._queues_due_at = 0.0
        self._floors: dict[tuple[str, int], datetime] = {}
        self._is_draining = False
        self._rotation = 0
        # Monotonic times of the next look without a wake, and of the latest one that
        # may not be put off.
        self._look_at = 0.0
        self._poll_at = 0.0
        self._rechecks = list(RECHECK_SECONDS)
        self._wake_not_before = 0.0
        self._empty_wakes = 0
        self._full_not_before = 0.0
        self._dear_looks = 0
        self._share_at = 0.0
        # How often look_now() was called; and, of the last look over all queues, that
        # number when it began and how many jobs it found.
        self._asked = 0
        self._last_full: tuple[int, int] | None = None

    def retry_in(self, seconds: float) -> None:
        """Note that a job of ours becomes visible again in *seconds*."""
        at = time.monotonic() + seconds
        if at < self._look_at:
            self._look_at = at
            self.wake.set()

    def look_now(self) -> None:
        """Look at all queues at once; found_since_asked() says what came of it."""
        self._asked += 1
        self._queues_due_at = self._poll_at = 0.0
        self._is_draining = False
        self.wake.set()

    def found_since_asked(self) -> int | None:
        """Return what a look that began after look_now() found; None: not yet."""
        if self._last_full is None or self._last_full[0] != self._asked:
            return None
        return self._last_full[1]

    def tick(self) -> float:
        """Claim once, if there is room and a reason to look."""
        try:
            return self._look()
        except Exception:
            # The flags that this look took are gone with it, and its floors may be
            # wrong by now: the next try looks at everything.
            self._queues_due_at = self._poll_at = 0.0
            self._is_draining = False
            raise

    def _look(self) -> float:
        now = time.monotonic()
        room = self._room()
        if room <= 0:
            return self._poll_seconds
        if now >= self._queues_due_at:
            self._refresh_queues(now)
        if self._is_draining:
            return self._drain(room)
        if now >= self._poll_at:
            # Before the wakes, so that no stream of them can starve it.
            return self._look_at_all(room)
        if self._wakes.pending and now >= self._wake_not_before:
            return self._look_after_wake(room)
        if now >= self._look_at:
            return self._look_at_all(room)
        return self._pause()

    def _pause(self) -> float:
        now = time.monotonic()
        until = min(self._look_at, self._poll_at, self._queues_due_at)
        if self._wakes.pending:
            until = min(until, self._wake_not_before)
        return max(until - now, 0.0)

    def _refresh_queues(self, now: float) -> None:
        with self.link.cursor() as cursor:
            known = claims.known_queues(cursor)
            paused = {queue.name for queue in known if queue.is_paused}
            served = list(self._options.queues) or [queue.name for queue in known]
            new = [q.name for q in known if not q.has_row and q.name in served]
            if new:
                claims.remember_queues(cursor, new)
        self._paused = paused
        self._queues = [name for name in served if name not in paused]
        self._queues_due_at = now + self._poll_seconds

    def _look_after_wake(self, room: int) -> float:
        if time.monotonic() < self._full_not_before:
            return self._drain_known(room)
        flagged = self._take_flags()
        queues = None if flagged is None else self._served(flagged)
        found = self._full(room, queues)
        if found:
            self._empty_wakes = 0
        else:
            self._empty_wakes = min(self._empty_wakes + 1, 16)
            self._wake_not_before = time.monotonic() + min(
                EMPTY_WAKE_SECONDS_MIN * 2**self._empty_wakes, EMPTY_WAKE_SECONDS_MAX
            )
        self._after(found, room)
        return self._pause() if not self._is_draining else 0.0

    def _look_at_all(self, room: int) -> float:
        now = time.monotonic()
        if now < self._full_not_before:
            self._look_at = max(self._look_at, self._full_not_before)
            self._poll_at = max(self._poll_at, self._full_not_before)
            return self._pause()
        # What is flagged now is looked at now.
        self._take_flags()
        found = self._full(room, None)
        if found:
            self._after(found, room)
        else:
            self._dry()
        return self._pause() if not self._is_draining else 0.0

    def _drain_known(self, room: int) -> float:
        """Serve a wake from the floors while full looks are rationed."""
        found = self._from_floors(room) if self._floors else 0
        if found < room:
            self._wake_not_before = self._full_not_before
        if found:
            self._after(found, room)
        return self._pause()

    def _drain(self, room: int) -> float:
        now = time.monotonic()
        if now >= self._full_not_before and (
            self._wakes.pending or now >= self._share_at
        ):
            # A wake in the middle of a drain may mean a line of higher priority; the
            # poll, a queue that nobody woke us for.
            flagged = self._take_flags()
            everything = flagged is None or now >= self._share_at
            if self._full(room, None if everything else self._served(flagged or set())):
                return 0.0
        found = self._from_floors(room) if self._floors else 0
        if found < room:
            self._is_draining = False
            self._look_at = time.monotonic()
        return 0.0

    def _take_flags(self) -> set[str] | None:
        """Take the flags; before a look at all queues, learn of new ones among them."""
        flagged = self._wakes.take()
        if flagged is None or not flagged.issubset(self._queues):
            self._refresh_queues(time.monotonic())
        return flagged

    def _served(self, flagged: set[str]) -> list[str]:
        """Return the flagged queues that this worker serves; learn new names."""
        if self._options.queues:
            return [name for name in self._queues if name in flagged]
        fresh = [name for name in flagged if name not in self._queues]
        if fresh:
            # A name never seen before: a new queue, or somebody's noise.
            self._queues_due_at = 0.0
        return [name for name in flagged if name not in self._paused]

    def _full(self, room: int, queues: list[str] | None) -> int:
        """Look without floors, at all queues or at some; return how many it found."""
        number = self._asked
        asked = self._rotated(self._queues if queues is None else queues)
        if not asked:
            if queues is None:
                self._poll_at = time.monotonic() + self._poll_seconds
                self._last_full = (number, 0)
            return 0
        started = time.monotonic()
        with self.link.cursor() as cursor:
            jobs = claims.claim(
                cursor,
                queues=asked,
                worker=self._worker,
                limit=room,
                lease=self._options.lease,
            )
        took = time.monotonic() - started
        self._dear_looks = self._dear_looks + 1 if took > DEAR_SECONDS else 0
        if self._dear_looks >= DEAR_LOOKS:
            ration = min(took * RATION, self._poll_seconds)
            self._full_not_before = time.monotonic() + ration
        if queues is None:
            # While looks are dear, the lines that are known serve the wakes.
            if len(jobs) < room and not self._dear_looks:
                self._floors.clear()
            for job in jobs:
                self._floors.pop((job.queue, job.priority), None)
            self._poll_at = time.monotonic() + self._poll_seconds
            self._share_at = time.monotonic() + min(SHARE_SECONDS, self._poll_seconds)
            self._last_full = (number, len(jobs))
        self._hand_over(jobs, started)
        return len(jobs)

    def _from_floors(self, room: int) -> int:
        order = {name: n for n, name in enumerate(self._rotated(self._queues))}
        lines = sorted(
            (
                Line(queue, priority, floor)
                for (queue, priority), floor in self._floors.items()
            ),
            key=lambda line: (-line.priority, order.get(line.queue, 0)),
        )
        started = time.monotonic()
        with self.link.cursor() as cursor:
            jobs = claims.claim_from_floors(
                cursor,
                lines=lines,
                worker=self._worker,
                limit=room,
                lease=self._options.lease,
            )
        self._hand_over(jobs, started)
        return len(jobs)

    def _hand_over(self, jobs: list[Claimed], asked_at: float) -> None:
        for job in jobs:
            line = (job.queue, job.priority)
            floor = self._floors.get(line)
            if floor is None or job.due_at > floor:
                self._floors[line] = job.due_at
        self._leases.add(jobs, asked_at)
        self._put(jobs)

    def _after(self, found: int, room: int) -> None:
        if found >= room:
            self._is_draining = True
        else:
            # Also when a wake found nothing: its job was taken by another worker, and
            # the one after it may have come without a wake of its own.
            self._rechecks = list(RECHECK_SECONDS)
            self._look_at = time.monotonic() + self._rechecks.pop(0)

    def _dry(self) -> None:
        """Nothing is due: re-check a few times, then wait for a time or the poll."""
        now = time.monotonic()
        if self._rechecks:
            self._look_at = now + self._rechecks.pop(0)
            return
        self._look_at = now + self._poll_seconds
        if self._queues:
            with self.link.cursor() as cursor:
                seconds = claims.seconds_until_due(
                    cursor, self._queues, just_now=JUST_NOW
                )
            if seconds is not None and seconds <= 0:
                # Due since the look that found nothing; or somebody holds its row.
                self._look_at = min(self._look_at, now + RECHECK_SECONDS[-1])
            elif seconds is not None:
                # A millisecond late rather than early: early finds nothing.
                self._look_at = min(self._look_at, now + seconds + 0.001)

    def _rotated(self, queues: list[str]) -> list[str]:
        if len(queues) < 2:
            return queues
        self._rotation = (self._rotation + 1) % len(queues)
        return queues[self._rotation :] + queues[: self._rotation]
