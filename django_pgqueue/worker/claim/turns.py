"""
Turns: which queues have lanes that take turns, whose turn it is, and who starts first.

Their jobs are parked until they are claimed (queues/fair.py), so no look at a queue
sees them. That there may be some is known by a wake, or since the claimer asks which
queues there are; it is over when a claim has been through all of their lanes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from django_pgqueue.bounds import FAIR, PRIORITY_DEFAULT, TIME_MIN
from django_pgqueue.queues.claim import Band, Claimed, SeenBand, Sight
from django_pgqueue.queues.fair import Stand

# Calls for one claim: where lanes have less than others, or end, there may be more.
CALLS_MAX = 3

# A stranger who notifies with made-up names fills this much and no more.
NAMES_MAX = 1_000

# Jobs that somebody had locked at their turn are passed by for so long, and so many.
PASSED_SECONDS, PASSED_MAX = 0.25, 1_000

# Turns that are remembered, before those that are over are forgotten.
TURNS_MAX = 10_000

BEGINNING = Stand()

# A rank, and the turn of jobs of one rank.
Place = tuple[int, int]


@dataclass(slots=True)
class Turn:
    """What is known of a queue with fair lanes."""

    # Whose turn was the last.
    stand: Stand = BEGINNING
    # Whether there may be something due; and from when on, by the monotonic clock.
    has_more: bool = True
    due_at: float = math.inf
    # The queue may have due jobs beside, by the last look: each side has half of the
    # next claim, and what does not come out even in turn.
    has_others: bool = True
    is_odd: bool = False
    # What somebody had locked, and until when it is passed by.
    passed: list[int] = field(default_factory=list)
    passed_until: float = 0.0
    # Nobody has flagged it since the database last said that it has none.
    is_doubted: bool = False

    def pass_by(self, jobs: Sequence[int]) -> None:
        """Note what a claim has passed by: others may have left it there."""
        if jobs and not self.passed:
            self.passed_until = time.monotonic() + PASSED_SECONDS
        self.passed = [*self.passed, *jobs][-PASSED_MAX:]
        self.has_more |= bool(self.passed)

    def to_pass(self) -> list[int]:
        """Return what a claim is to pass by now."""
        if self.passed and time.monotonic() >= self.passed_until:
            self.passed = []
        return self.passed


class Turns(dict[str, Turn]):
    """The queues with fair lanes, by name. The claimer's own, but for flag()."""

    def known(self, queues: set[str]) -> None:
        """
        Be told which queues have parked jobs of fair lanes; forget others.

        Those that are flagged go by the second time that they have none: the first time
        may have been asked before the flag.
        """
        for queue, turn in list(self.items()):
            if queue not in queues:
                is_over = not turn.has_more and turn.due_at == math.inf
                if turn.is_doubted or is_over:
                    del self[queue]
                turn.is_doubted = True
        for queue in queues:
            self.flag(queue)

    def flag(self, queue: str) -> None:
        """Note that *queue* has got jobs of fair lanes; any thread may call it."""
        turn = self.get(queue)
        if turn is None and len(self) < NAMES_MAX:
            turn = Turn()
        if turn is not None:
            turn.has_more, turn.is_doubted = True, False
            self[queue] = turn

    def of(self, queue: str) -> Turn | None:
        """Return what is known of *queue*, if its lanes may have something."""
        turn = self.get(queue)
        if turn is None or not (turn.has_more or time.monotonic() >= turn.due_at):
            return None
        return turn

    def seen(self, queues: Iterable[str], sight: Sight) -> Sight:
        """Return what was seen, with a band for each of *queues* that has lanes."""
        due = {band.queue for band in sight.bands if band.visible_at <= sight.now}
        found = []
        for queue in queues:
            if (turn := self.of(queue)) is not None:
                turn.has_others = queue in due
                found.append(SeenBand(queue, PRIORITY_DEFAULT, sight.now))
        # What is seen of a band comes after what is not: it has a time.
        return sight._replace(bands=[*found, *sight.bands])

    def note_others(self, queues: Iterable[str], jobs: Sequence[Claimed]) -> None:
        """Take what a claim of all other jobs of *queues* has brought."""
        names = {job.queue for job in jobs}
        for queue in queues:
            if (turn := self.get(queue)) is not None:
                turn.has_others = queue in names


class StartOrder:
    """
    Which of the jobs that wait to start in this process goes first: the lower.

    By their rank; and of one rank, those of fair lanes by turns, also when one lane has
    hundreds that were claimed ahead. Used by the claimer's thread alone.
    """

    def __init__(self, rank: Callable[[Claimed], int]) -> None:
        self._rank = rank
        # Of each job of a fair lane that waits, which turn it is; and of each lane that
        # of its last one. They are forgotten once they are over.
        self._turns: dict[int, int] = {}
        self._last: dict[str | None, int] = {}
        # Which turn it is now.
        self._now = 0

    def place(self, job: Claimed) -> Place:
        """Return where it goes; of what has not been arranged, before other turns."""
        is_fair = job.lane_policy == FAIR
        return self._rank(job), self._turns.get(job.id, 0) if is_fair else 0

    def arrange(self, jobs: list[Claimed], first: Claimed | None) -> list[Claimed]:
        """
        Return what one claim has brought in this order.

        Args:
            jobs: Of fair lanes.
            first: Of those that wait, the first; None: none does.
        """
        if first is None:
            # All have started.
            self._turns, self._last = {}, {}
        else:
            self._now = max(self._now, self._turns.get(first.id, 0))
            if len(self._turns) > TURNS_MAX:
                self._forget()
        turns, last = self._turns, self._last
        for job in jobs:
            turn = max(last.get(job.lane, 0) + 1, self._now)
            turns[job.id] = last[job.lane] = turn
        return sorted(jobs, key=self.place)

    def _forget(self) -> None:
        """Forget turns that are over; and all, where nobody can tell which are."""
        now = self._now
        self._turns = {i: n for i, n in self._turns.items() if n >= now}
        self._last = {i: n for i, n in self._last.items() if n >= now}
        if len(self._turns) > TURNS_MAX // 2:
            self._turns, self._last = {}, {}


def part_of(turn: Turn, limit: int, *, is_limited: bool = False) -> int:
    """
    Return how many of *limit* jobs fair lanes may have at first.

    Where the queue has a limit, one place may be free at a time, and half of the claim
    is more than that: so each side has every other claim first.
    """
    if not turn.has_others:
        return limit
    turn.is_odd = not turn.is_odd
    if is_limited:
        return limit if turn.is_odd else 0
    return (limit + turn.is_odd) // 2


def limits_of(bands: Sequence[Band], limit: int) -> dict[str, int] | None:
    """Return how many jobs each queue of *bands* may have; None: all as many."""
    if not bands:
        return None
    limits: dict[str, int] = {}
    for band in bands:
        limits[band.queue] = min(limits.get(band.queue, 0) + band.limit, limit)
    return limits


def stand_ins(
    queue: str, count: int, like: Claimed, bands: Sequence[Band]
) -> list[Claimed]:
    """
    Return what the poller is told in place of *count* jobs of fair lanes.

    They were in no band, so that none has got a floor from them: what stands there
    begins where it began.
    """
    priority, floor = PRIORITY_DEFAULT, TIME_MIN
    for band in bands:
        if band.queue == queue:
            priority, floor = band.priority, band.floor
            break
    return [like._replace(queue=queue, priority=priority, due_at=floor)] * count
