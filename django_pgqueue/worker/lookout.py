"""
Lookout: when to look for jobs, where, and from which floor on. For one kind of room.

While a queue is drained, claims start at floors, so that they do not walk over what is
finished. A look after a wake, a re-check and the poll do without: a transaction may
commit rows that became visible earlier, and a claim that rolled back gives rows back.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from django_pgqueue.queues.claim import Claimed, Line
from django_pgqueue.worker.wakes import NAMES_MAX

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


class Desk(Protocol):
    """What a lookout asks: the claimer, for one kind of room."""

    def queues(self) -> list[str]:
        """Return the queues to look at when all are meant."""

    def learn(self, names: set[str] | None) -> None:
        """Ask which queues there are, unless all of *names* are known."""

    def served(self, names: set[str]) -> list[str]:
        """Return those of *names* that may be claimed from; unheard ones too."""

    def claim(self, queues: Sequence[str], limit: int) -> list[Claimed]:
        """Lease what is due, without floors, and hand it over."""

    def claim_from_floors(self, lines: Sequence[Line], limit: int) -> list[Claimed]:
        """Lease what is due in known lines, and hand it over."""

    def seconds_until_due(self, queues: list[str]) -> float | None:
        """Say when the next job becomes visible."""


class Lookout:
    """Decides about looks; the desk takes them."""

    def __init__(self, desk: Desk, poll_seconds: float) -> None:
        self._desk = desk
        self._poll_seconds = poll_seconds
        self._flagged: set[str] = set()
        self._flagged_any = False
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
        # How often ask() was called; and, of the last look over all queues, that
        # number when it began and how many jobs it found.
        self._asked = 0
        self._last_full: tuple[int, int] | None = None

    def flag(self, names: Collection[str] | None) -> None:
        """Note the wakes of queues; None: of any."""
        if names is None or len(self._flagged) + len(names) > NAMES_MAX:
            self._flagged_any = True
        else:
            self._flagged.update(names)

    def due_by(self, at: float) -> bool:
        """Look at the monotonic time *at* at the latest; False: would have anyway."""
        if at >= self._look_at:
            return False
        self._look_at = at
        return True

    def start_over(self) -> None:
        """Look at everything next: what is known of flags and floors may be wrong."""
        self._poll_at = 0.0
        self._is_draining = False

    def ask(self) -> None:
        """Look at all queues at once; found_since_asked() says what came of it."""
        self._asked += 1
        self.start_over()

    def found_since_asked(self) -> int | None:
        """Return what a look that began after ask() found; None: not yet."""
        if self._last_full is None or self._last_full[0] != self._asked:
            return None
        return self._last_full[1]

    def look(self, room: int) -> float:
        """Look for *room* jobs if there is a reason; return how long to wait then."""
        if self._is_draining:
            return self._drain(room)
        now = time.monotonic()
        if now >= self._poll_at:
            # Before the wakes, so that no stream of them can starve it.
            return self._look_at_all(room)
        if self._is_flagged and now >= self._wake_not_before:
            return self._look_after_wake(room)
        if now >= self._look_at:
            return self._look_at_all(room)
        return self._pause()

    @property
    def _is_flagged(self) -> bool:
        return self._flagged_any or bool(self._flagged)

    def _pause(self) -> float:
        now = time.monotonic()
        until = min(self._look_at, self._poll_at)
        if self._is_flagged:
            until = min(until, self._wake_not_before)
        return max(until - now, 0.0)

    def _look_after_wake(self, room: int) -> float:
        if time.monotonic() < self._full_not_before:
            return self._drain_known(room)
        flagged = self._take_flags()
        queues = None if flagged is None else self._desk.served(flagged)
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
        if now >= self._full_not_before and (self._is_flagged or now >= self._share_at):
            # A wake in the middle of a drain may mean a line of higher priority; the
            # poll, a queue that nobody woke us for.
            flagged = self._take_flags()
            queues = None
            if flagged is not None and now < self._share_at:
                queues = self._desk.served(flagged)
            if self._full(room, queues):
                return 0.0
        found = self._from_floors(room) if self._floors else 0
        if found < room:
            self._is_draining = False
            self._look_at = time.monotonic()
        return 0.0

    def _take_flags(self) -> set[str] | None:
        """Lower the flags and return them; None: any queue may be meant."""
        flagged = None if self._flagged_any else self._flagged
        self._flagged, self._flagged_any = set(), False
        # Before a look at all queues, too: a new one may be among them.
        self._desk.learn(flagged)
        return flagged

    def _full(self, room: int, queues: list[str] | None) -> int:
        """Look without floors, at all queues or at some; return how many it found."""
        number = self._asked
        asked = self._rotated(self._desk.queues() if queues is None else queues)
        if not asked:
            if queues is None:
                self._poll_at = time.monotonic() + self._poll_seconds
                self._last_full = (number, 0)
            return 0
        started = time.monotonic()
        jobs = self._desk.claim(asked, room)
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
        self._raise_floors(jobs)
        return len(jobs)

    def _from_floors(self, room: int) -> int:
        order = {name: n for n, name in enumerate(self._rotated(self._desk.queues()))}
        lines = sorted(
            (
                Line(queue, priority, floor)
                for (queue, priority), floor in self._floors.items()
                # Not of a queue that was paused, or is the other lookout's by now.
                if queue in order
            ),
            key=lambda line: (-line.priority, order[line.queue]),
        )
        if not lines:
            return 0
        jobs = self._desk.claim_from_floors(lines, room)
        self._raise_floors(jobs)
        return len(jobs)

    def _raise_floors(self, jobs: list[Claimed]) -> None:
        for job in jobs:
            line = (job.queue, job.priority)
            floor = self._floors.get(line)
            if floor is None or job.due_at > floor:
                self._floors[line] = job.due_at

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
        queues = self._desk.queues()
        if queues:
            seconds = self._desk.seconds_until_due(queues)
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
