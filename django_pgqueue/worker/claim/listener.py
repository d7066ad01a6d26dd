"""
Listener: hears NOTIFY and sets a flag. It never claims.

Its thread opens the connection, proves that it hears, and replaces it. It does not wait
for notifications: the claimer does that itself (wait()), on the connection that it is
lent, since handing each of them from thread to thread would take as long as the claim.

A dead connection looks open for hours, and a pooler may swallow LISTEN without a word.
So the listener proves itself: the heartbeat, on its own connection, notifies a token
now and then, and a listener that does not hear it reconnects. After a reconnect:
LISTEN first, then look at everything, then wait; what came in between is not missed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import psycopg

from django_pgqueue.log.publish import HINT as TOPIC_HINT
from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.wakeup import Wakeup
from django_pgqueue.queues.bulk_acts import HINT as BULK_HINT
from django_pgqueue.queues.fair import HINT as FAIR_HINT
from django_pgqueue.queues.held import HINT as HELD_HINT
from django_pgqueue.queues.watch import HINT as ALERT_HINT
from django_pgqueue.schedules.store import HINT as SCHEDULES_HINT
from django_pgqueue.tasks.operate import CANCEL_HINT
from django_pgqueue.worker.claim.turns import Turns
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.service import Service

logger = logging.getLogger("django_pgqueue.worker")

# How often it is looked whether a proof is overdue; and what has come is read this
# often while the claimer, busy or stuck, does not do it.
LOOK_SECONDS = 1.0
PROOF_INTERVAL_SECONDS = 15.0
PROOF_PATIENCE_SECONDS = 5.0

# Hints that one call makes good that were missed while nothing was heard. Lanes, and
# those who wait for jobs, look for themselves.
MISSED_HINTS = (
    CANCEL_HINT,
    SCHEDULES_HINT,
    HELD_HINT,
    ALERT_HINT,
    BULK_HINT,
    TOPIC_HINT,
)

# A worker of all queues learns new names from wakes. A stranger who notifies with
# made-up names fills this much and no more; beyond it, the flag is "any".
NAMES_MAX = 1_000

Listening = psycopg.Connection[tuple[Any, ...]]


class Wakes:
    """
    Which queues may have new jobs: a flag each, however many said so.

    Set by the listener, taken by the claimer. And some are about no queue: running jobs
    may have been cancelled, schedules changed, tasks paused or resumed, messages
    published to a topic that groups read, jobs stored that wait in lanes, alerts
    written, bulk acts asked for, or somebody waits for the end of jobs, or for output.
    """

    def __init__(self, plan: QueuePlan, wakeup: Wakeup) -> None:
        self.wakeup = wakeup
        self.turns = Turns()
        # By what a hint begins with: what is called with the rest of it.
        self.hints: Mapping[str, Callable[[str], None]] = {}
        self._serves = plan.serves
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._any = True  # The first look is at everything.

    def flag(self, queue: str) -> None:
        """Note that *queue* got jobs, if this worker serves it; or pass on a hint."""
        if queue.startswith("!"):
            for start, on_hint in self.hints.items():
                if queue.startswith(start):
                    on_hint(queue.removeprefix(start))
                    return
            if queue.startswith(FAIR_HINT):
                queue = queue.removeprefix(FAIR_HINT)
                if self._serves(queue):
                    self.turns.flag(queue)
        if not self._serves(queue):
            return
        with self._lock:
            if len(self._names) < NAMES_MAX:
                self._names.add(queue)
            else:
                self._any = True
        self.wakeup.set()

    def flag_any(self) -> None:
        """Note that anything may have been notified, as after a reconnect."""
        with self._lock:
            self._any = True
        self.wakeup.set()
        for hint in MISSED_HINTS:
            if hint in self.hints:
                self.hints[hint]("")

    @property
    def pending(self) -> bool:
        """Whether there is a flag to take."""
        return self._any or bool(self._names)

    def take(self) -> set[str] | None:
        """Return the flagged queues and lower the flags; None: any."""
        with self._lock:
            names, anything = self._names, self._any
            self._names, self._any = set(), False
        return None if anything else names


class Listener(Service):
    """Has a connection that listens on the channel of all, and on one of its own."""

    name = "listener"

    def __init__(self, link: Link, wakes: Wakes) -> None:
        super().__init__(link)
        self._wakes = wakes
        self._listening_on: Listening | None = None
        self.own_channel = f"pgqueue_proof_{uuid4().hex}"
        self._proof_lock = threading.Lock()
        self._token: str | None = None
        self._token_sent_at = 0.0
        # Held by who waits on the connection or reads from it. It is not closed
        # meanwhile: the next connection could get its descriptor.
        self._ear_lock = threading.Lock()
        self._ear: Listening | None = None
        self._error: psycopg.Error | None = None

    def tick(self) -> float:
        """
        Reconnect when needed, and read what nobody else has read.

        Raises:
            psycopg.Error: The connection broke, in whoever's hands.
        """
        if self._is_deaf():
            logger.warning(
                "deaf       loop=listener: its own token was not heard within %.0f s; "
                "reconnecting",
                PROOF_PATIENCE_SECONDS,
            )
            self._take_back()
            self.link.drop()
        error, self._error = self._error, None
        if error is not None:
            self._listening_on = None
            raise error
        connection = self.link.connection
        if self._listening_on is not connection:
            self._listen()
            with self._ear_lock:
                self._listening_on = self._ear = connection
            self._wakes.flag_any()
        self.hear()
        return LOOK_SECONDS

    def wait(self, seconds: float, wakeup: Wakeup) -> None:
        """
        Wait for a notification, for *wakeup* or for *seconds*; hear what has come.

        For one thread, which may be another than the listener's. Never raises.
        """
        with self._ear_lock:
            connection = self._ear
            if connection is not None:
                try:
                    if wakeup.wait(seconds, connection.fileno()):
                        self._hear(connection)
                except psycopg.Error as error:
                    self._lost(error)
                return
        wakeup.wait(seconds)

    def hear(self) -> None:
        """Hear what has come, unless somebody waits for it already. Never raises."""
        if self._ear_lock.acquire(blocking=False):
            try:
                if self._ear is not None:
                    self._hear(self._ear)
            except psycopg.Error as error:
                self._lost(error)
            finally:
                self._ear_lock.release()

    def next_token(self) -> str | None:
        """Return a token to be notified to own_channel, when a proof is due."""
        now = time.monotonic()
        with self._proof_lock:
            due = now - self._token_sent_at >= PROOF_INTERVAL_SECONDS
            if self._listening_on is None or self._token is not None or not due:
                return None
            self._token, self._token_sent_at = uuid4().hex, now
            return self._token

    def forget_token(self) -> None:
        """Take back a token that could not be sent, so that nobody waits for it."""
        with self._proof_lock:
            self._token = None

    def _listen(self) -> None:
        with self.link.cursor() as cursor:
            wake.listen(cursor, [wake.channel(cursor), self.own_channel])
        self.forget_token()

    def _hear(self, connection: Listening) -> None:
        """Hand on what has arrived, without waiting. Under the lock."""
        pgconn = connection.pgconn
        pgconn.consume_input()
        while (notice := pgconn.notifies()) is not None:
            # A stranger may notify anything.
            payload = notice.extra.decode(errors="replace")
            self._note(notice.relname.decode(), payload)

    def _note(self, channel: str, payload: str) -> None:
        if channel == self.own_channel:
            self._heard(payload)
        else:
            self._wakes.flag(payload)

    def _lost(self, error: psycopg.Error) -> None:
        """Let the next tick fail of what was met elsewhere. Under the lock."""
        self._ear, self._error = None, error
        self.wake.set()

    def _take_back(self) -> None:
        """Wait until nobody uses the connection any more."""
        self._ear = None
        # Ends the claimer's wait.
        self._wakes.wakeup.set()
        with self._ear_lock:
            pass

    def _end(self) -> None:
        self._take_back()
        super()._end()

    def _heard(self, token: str) -> None:
        with self._proof_lock:
            if token == self._token:
                self._token = None

    def _is_deaf(self) -> bool:
        with self._proof_lock:
            return (
                self._token is not None
                and time.monotonic() - self._token_sent_at > PROOF_PATIENCE_SECONDS
            )


class SharedListener(Listener):
    """
    A listener on the connection of the other loops.

    They may read a notification with the answer to a statement, so each is handed on
    by whoever reads it. And they may replace the connection.
    """

    def wait(self, seconds: float, wakeup: Wakeup) -> None:
        """Wait as any listener does, without the turn; with it, hear what has come."""
        connection = self._ear
        if connection is None or connection.closed:
            wakeup.wait(seconds)
        elif wakeup.wait(seconds, connection.fileno()):
            self.hear()

    def hear(self) -> None:
        """Hear what has come. Never raises."""
        with self.link.turn:
            connection = self._ear
            try:
                if connection is not None and not connection.closed:
                    self._hear(connection)
            except psycopg.Error:
                # The next tick finds that it is closed.
                self._ear = None
                self.wake.set()

    def _listen(self) -> None:
        self.link.connection.add_notify_handler(
            lambda notice: self._note(notice.channel, notice.payload)
        )
        super()._listen()

    def _take_back(self) -> None:
        self._ear = None
