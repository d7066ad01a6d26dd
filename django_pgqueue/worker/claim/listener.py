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
from typing import Any
from uuid import uuid4

import psycopg

from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import Link
from django_pgqueue.worker.claim.wakes import Wakes
from django_pgqueue.worker.claim.wakeup import Wakeup
from django_pgqueue.worker.service import Service

logger = logging.getLogger("django_pgqueue.worker")

# How often it is looked whether a proof is overdue; and what has come is read this
# often while the claimer, busy or stuck, does not do it.
LOOK_SECONDS = 1.0
PROOF_INTERVAL_SECONDS = 15.0
PROOF_PATIENCE_SECONDS = 5.0


Listening = psycopg.Connection[tuple[Any, ...]]


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
            if notice.relname.decode() == self.own_channel:
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
        self._wakes.wake_up()
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
