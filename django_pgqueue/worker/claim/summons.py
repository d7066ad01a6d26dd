"""
Summons: how it comes to be known that jobs wait to run alone, and who is told.

Such a job is not for a process that runs others. Whoever learns that some wait tells
the supervisor, which starts a process for them: see quarantine.py.
"""

from __future__ import annotations

import contextlib
import os
import time
from multiprocessing.context import BaseContext

from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import suspects
from django_pgqueue.queues.suspects import Waiting
from django_pgqueue.worker.queue_plan import QueuePlan

# How often a process looks for jobs that nobody has told it of: of a crash elsewhere,
# of a worker that is gone for good, or whose next attempt is due by now.
LOOK_SECONDS = 10.0

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
        self._due_at = now + LOOK_SECONDS
        with link.cursor() as cursor:
            if served_suspects(cursor, self._plan):
                self._summons.send()


def served_suspects(cursor: Cursor, plan: QueuePlan) -> dict[str, Waiting]:
    """Return which jobs wait to run alone, by queue, of those that *plan* serves."""
    found = suspects.waiting(cursor)
    return {line.queue: line for line in found if plan.serves(line.queue)}
