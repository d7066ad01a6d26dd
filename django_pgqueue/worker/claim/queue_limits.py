"""
Queue limits: which queues have one, and how long one without room is left alone.

What there is room for, the claim finds out (queues/queue_limits.py). A queue that came
short by its limit is *closed* here: no claim asks it until its rate lets the next one
go, a job of it was settled by this process, somebody wakes it, or a while is over, in
which others may have settled theirs; and no longer than from poll to poll, for an
operator may have changed the rate, and his wake have been lost.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg

from django_pgqueue.conf import QueueLimit
from django_pgqueue.queues import queue_limits as limits
from django_pgqueue.queues.claim import Band, Claimed

# As many jobs are claimed as may be, and others settle some of them: the queue is asked
# again after so long, then less and less often. Whoever settles one asks at once.
FULL_SECONDS_MIN, FULL_SECONDS_MAX = 0.25, 1.0

# Others were quicker: they claim from the queue just now, or took what its rate let go.
# So of many processes that wait for the same moment, few ask each time.
VAIN_SECONDS_MIN, VAIN_SECONDS_MAX = 0.004, 0.25

# What the rate says is a millisecond late rather than early: early brings nothing.
LATE_SECONDS = 0.001

# A wake is for jobs that came, which find no room, or for a limit that was raised: it
# opens a queue no sooner than this after it was closed.
WOKEN_SECONDS = 0.1

NO_LIMIT = QueueLimit()

Cursor = psycopg.Cursor[tuple[Any, ...]]


@dataclass(slots=True)
class Closed:
    """A queue that came short. Times are monotonic."""

    since: float
    until: float
    # As many jobs are claimed as may be: one that is settled here opens it, but not
    # before its rate does.
    is_full: bool
    not_before: float
    # What was last noted as settled before the claim.
    settled: int


class QueueLimits:
    """The queues with a limit, to one claimer; any thread may call settled()."""

    def __init__(self, said: Mapping[str, QueueLimit], *, poll_seconds: float) -> None:
        self._said = said
        self._poll_seconds = poll_seconds
        self._names = frozenset(said)
        self._closed: dict[str, Closed] = {}
        # Of each queue, how often it was asked in vain, one after the other.
        self._vain: dict[str, int] = {}
        # Since the last split(): those that came short, and may have more.
        self.short: set[str] = set()
        self._settled: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def __bool__(self) -> bool:
        return bool(self._names)

    def __contains__(self, queue: str) -> bool:
        return queue in self._names

    def know(self, queues: Iterable[str]) -> None:
        """Be told of which queues an operator has said a limit."""
        self._names = frozenset(self._said).union(queues)

    def settled(self, queues: Iterable[str]) -> bool:
        """Note that jobs of *queues* were settled; return if one has waited for it."""
        has_waited = False
        for queue in queues:
            if queue in self._names:
                # Never a number that was there before, also where two threads do it.
                self._settled[queue] = next(self._numbers)
                closed = self._closed.get(queue)
                has_waited |= closed is not None and closed.is_full
        return has_waited

    def woken(self, queue: str) -> None:
        """Note that somebody has woken *queue*."""
        closed = self._closed.get(queue)
        if closed is not None:
            closed.until = min(closed.until, closed.since + WOKEN_SECONDS)

    def closed(self, queues: Iterable[str]) -> dict[str, int]:
        """Return those of *queues* that are not to be asked now, with no room each."""
        if not self._closed:
            return {}
        now = time.monotonic()
        return {queue: 0 for queue in queues if self._opens_at(queue, now) > now}

    def opens_in(self, queues: Iterable[str], otherwise: float) -> float:
        """Return the seconds until one of *queues* opens; *otherwise*: one is open."""
        now = time.monotonic()
        waits = [self._opens_at(queue, now) - now for queue in queues]
        return min((wait if wait > 0 else otherwise for wait in waits), default=0.0)

    def split(self, bands: Sequence[Band]) -> tuple[list[Band], dict[str, list[Band]]]:
        """Return the bands of queues without a limit, and of each that has one."""
        self.short = set()
        free: list[Band] = []
        limited: dict[str, list[Band]] = {}
        for band in bands:
            if band.queue in self._names:
                limited.setdefault(band.queue, []).append(band)
            else:
                free.append(band)
        return free, limited

    def limited(self, queue: str, statement: limits.Claim) -> limits.Claim:
        """Return *statement*, which claims from *queue* alone, as it has room."""

        def claim(
            cursor: Cursor, *, barred: Sequence[int], **terms: Any
        ) -> list[Claimed]:
            asked = partial(statement, barred=barred)
            return self.claim(cursor, asked, queue=queue, barred=barred, **terms)

        return claim

    def claim(
        self,
        cursor: Cursor,
        statement: limits.Claim,
        *,
        queue: str,
        limit: int,
        **terms: Any,
    ) -> list[Claimed]:
        """Claim by *statement* from *queue* as it has room; close it if it is short."""
        said = self._said.get(queue, NO_LIMIT)
        settled = self._settled.get(queue, 0)
        with cursor.connection.transaction():
            answer = limits.claim_limited(
                cursor,
                statement,
                queue=queue,
                limit=limit,
                concurrency=said.concurrency,
                spacing=said.spacing,
                burst=said.burst,
                **terms,
            )
        self._note(queue, answer, settled)
        return answer.jobs

    def _note(self, queue: str, answer: limits.LimitedClaim, settled: int) -> None:
        if not (answer.is_short or answer.is_busy):
            self._closed.pop(queue, None)
            self._vain.pop(queue, None)
            return
        self.short.add(queue)
        now = time.monotonic()
        vain = 0 if answer.jobs else self._vain.get(queue, 0) + 1
        self._vain[queue] = vain
        least, most = VAIN_SECONDS_MIN, VAIN_SECONDS_MAX
        if answer.is_full:
            least, most = FULL_SECONDS_MIN, FULL_SECONDS_MAX
        pause = 0.0
        if answer.is_full or vain:
            pause = min(least * 2 ** min(max(vain - 1, 0), 16), most)
        not_before = now
        if answer.next_seconds > 0:
            not_before += answer.next_seconds + LATE_SECONDS
        self._closed[queue] = Closed(
            since=now,
            until=min(max(now + pause, not_before), now + self._poll_seconds),
            is_full=answer.is_full,
            not_before=not_before,
            settled=settled,
        )

    def _opens_at(self, queue: str, now: float) -> float:
        closed = self._closed.get(queue)
        if closed is None:
            return now
        at = closed.until
        if closed.is_full and self._settled.get(queue, 0) != closed.settled:
            at = min(at, closed.not_before)
        if at <= now:
            del self._closed[queue]
        return at
