"""
Quarantine: the process in which jobs run alone that may have killed theirs.

The supervisor starts it when such jobs wait, beside the processes that it keeps, and it
leaves when none does. So everything else goes on meanwhile. It has the loops of any
other process, but one: what claims here takes the next job, or the next half of a large
crowd, only when the one before it is settled.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.context import BaseContext
from typing import Any

from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import suspects
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.suspects import Waiting
from django_pgqueue.worker.claim.claimer import Put
from django_pgqueue.worker.claim.message_prefetch import bring_messages
from django_pgqueue.worker.claim.queue_limits import QueueLimits
from django_pgqueue.worker.claim.strays import Strays
from django_pgqueue.worker.lease.leases import Leases
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.service import Service

# How often a process looks for jobs that nobody has told it of: of a crash elsewhere,
# of a worker that is gone for good, or whose next attempt is due by now.
SUSPECTS_LOOK_SECONDS = 10.0

# A process tells no sooner than this after it has told before.
AGAIN_SECONDS = 0.1


class Summons:
    """From processes to their supervisor, which makes it before it starts any."""

    def __init__(self, context: BaseContext) -> None:
        self.reader, self._writer = context.Pipe(duplex=False)
        # Whoever tells must not wait for a supervisor that is frozen.
        os.set_blocking(self._writer.fileno(), False)
        self._again_at = 0.0

    def send(self) -> None:
        """Tell that a job waits to run alone; returns at once."""
        now = time.monotonic()
        if now < self._again_at:
            return
        self._again_at = now + AGAIN_SECONDS
        # Full: it is told already. Broken: there is no supervisor any more.
        with contextlib.suppress(OSError):
            self._writer.send_bytes(b"!")

    def take(self) -> bool:
        """Return whether anybody has told since the last call."""
        is_called = False
        while self.reader.poll():
            self.reader.recv_bytes()
            is_called = True
        return is_called


class SuspectWatch:
    """Looks for jobs that wait to run alone, now and then."""

    def __init__(self, plan: QueuePlan, summons: Summons) -> None:
        self._plan = plan
        self._summons = summons
        self._due_at = 0.0

    def look(self, link: Link) -> None:
        """Look if it is time to, and tell what is found."""
        now = time.monotonic()
        if now < self._due_at:
            return
        self._due_at = now + SUSPECTS_LOOK_SECONDS
        with link.cursor() as cursor:
            if served_suspects(cursor, self._plan):
                self._summons.send()


def served_suspects(cursor: Cursor, plan: QueuePlan) -> dict[str, Waiting]:
    """Return which jobs wait to run alone, by queue, of those that *plan* serves."""
    found = suspects.waiting(cursor)
    return {line.queue: line for line in found if plan.serves(line.queue)}


logger = logging.getLogger("django_pgqueue.worker")

# It leaves when it has found nothing for so long: the next crash is not far, and a
# start takes longer than a look.
IDLE_SECONDS = 2.0
LOOK_SECONDS = 0.2

# How often it is looked whether what runs is over: a tenth of its time so far.
WAIT_SECONDS_SHORT, WAIT_SECONDS_LONG = 0.002, 0.1


class Quarantine(Service):
    """Leases jobs that run alone, one crowd after another."""

    name = "claimer"

    def __init__(
        self,
        link: Link,
        *,
        options: WorkerOptions,
        leases: Leases,
        strays: Strays,
        hand_back: Callable[[list[Claimed]], None],
        is_idle: Callable[[], bool],
        put: Put,
        on_empty: Callable[[], None],
        on_more: Callable[[], None],
    ) -> None:
        """
        Make it.

        Args:
            link: Its connection.
            options: Whose queues are served.
            leases: Of this process.
            strays: Takes back what a claim without an answer has leased.
            hand_back: Takes what was claimed and cannot run here.
            is_idle: Tells whether everything that was put is settled.
            put: Takes what was claimed.
            on_empty: Called when no job has waited to run alone for a while.
            on_more: Called when more of them wait than this process has taken.
        """
        super().__init__(link)
        self._options = options
        self._plan = options.plan
        self._limits = QueueLimits(
            options.settings.queue_limits,
            poll_seconds=options.settings.poll_interval_seconds,
        )
        # Queues with a limit and those without take turns.
        self._turns = 0
        self._leases = leases
        self._strays = strays
        self._hand_back = hand_back
        self._is_idle = is_idle
        self._put = put
        self._on_empty = on_empty
        self._on_more = on_more
        self._claimed_at = time.monotonic()
        self._looked_at = 0.0
        self._requested_at = 0.0
        self._found: int | None = None

    def retry_in(self, seconds: float) -> None:
        """Do nothing: a job that waits for its next attempt may call another of us."""

    def settled(self, queues: Iterable[str]) -> None:
        """Note that jobs of *queues* were settled: there may be room for others."""
        self._limits.settled(queues)

    def ask_again(self) -> None:
        """Do nothing: each claim asks what is paused."""

    def look_now(self) -> None:
        """Look at once; found_since_requested() says what came of it."""
        self._found, self._requested_at = None, time.monotonic()
        self.wake.set()

    def found_since_requested(self) -> int | None:
        """Return what a look that began after look_now() found; None: not yet."""
        return self._found if self._looked_at >= self._requested_at else None

    def tick(self) -> float:
        """Claim what runs next, if nothing does."""
        now = time.monotonic()
        if time.monotonic() >= self._strays.due_at:
            self._strays.take_back(self.link)
        if not self._is_idle():
            ran = now - self._claimed_at
            return min(max(ran / 10, WAIT_SECONDS_SHORT), WAIT_SECONDS_LONG)
        jobs = self._claim()
        self._looked_at, self._found = now, len(jobs)
        if jobs:
            self._claimed_at = now
            self._hand_over(jobs, now)
            return WAIT_SECONDS_SHORT
        if now - self._claimed_at >= IDLE_SECONDS and not self._strays.is_pending:
            self._on_empty()
        return LOOK_SECONDS

    def _end(self) -> None:
        self._strays.finish(self.link)
        super()._end()

    def _claim(self) -> list[Claimed]:
        with self.link.cursor() as cursor:
            queues = served_suspects(cursor, self._plan)
        self._limits.know(name for name, line in queues.items() if line.is_limited)
        closed = self._limits.closed(queues)
        asked = [name for name in queues if name not in closed]
        groups = [[name] for name in asked if name in self._limits]
        if others := [name for name in asked if name not in self._limits]:
            groups.append(others)
        self._turns += 1
        for number in range(len(groups)):
            group = groups[(number + self._turns) % len(groups)]
            jobs = self._claim_from(group)
            # Of a limit, those that it leaves out are not for another of us.
            if jobs and sum(queues[name].jobs for name in asked) > len(jobs):
                self._on_more()
            if jobs:
                return jobs
        return []

    def _claim_from(self, queues: list[str]) -> list[Claimed]:
        """Claim from queues without a limit, or from one that has one."""
        terms: dict[str, Any] = {
            "worker": self._leases.worker,
            "limit": self._limit(),
            "lease": self._options.lease,
        }
        try:
            with self.link.steady_cursor(binary=True) as cursor:
                if queues[0] not in self._limits:
                    return suspects.claim_suspects(cursor, queues=queues, **terms)
                statement = partial(suspects.claim_suspects, queues=queues)
                return self._limits.claim(
                    cursor, statement, queue=queues[0], alone=True, **terms
                )
        except BaseException as error:
            self._strays.note_if_lost(self.link, error)
            raise

    def _limit(self) -> int:
        """Return how many may run at once: of a queue with a cap, one."""
        if self._plan.has_caps:
            return 1
        return max(self._options.threads, self._options.async_slots)

    def _hand_over(self, jobs: list[Claimed], sent_at: float) -> None:
        logger.warning(
            "alone      jobs=%d first=%d task=%s crashes=%d",
            len(jobs),
            jobs[0].id,
            jobs[0].task,
            jobs[0].crashes,
        )
        jobs = bring_messages(self.link, jobs)
        refused = self._leases.add(jobs, sent_at)
        if refused:
            self._hand_back(refused)
            jobs = [job for job in jobs if job not in refused]
        self._put(jobs, False)
