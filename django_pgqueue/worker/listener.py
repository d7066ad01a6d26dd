"""
Listener: hears NOTIFY and sets a flag. It never claims.

A dead connection looks open for hours, and a pooler may swallow LISTEN without a word.
So the listener proves itself: the heartbeat, on its own connection, notifies a token
now and then, and a listener that does not hear it reconnects. After a reconnect:
LISTEN first, then look at everything, then wait; what came in between is not missed.
"""

from __future__ import annotations

import logging
import threading
import time
from uuid import uuid4

from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import Link
from django_pgqueue.worker.service import Service
from django_pgqueue.worker.wakes import Wakes

logger = logging.getLogger("django_pgqueue.worker")

WAIT_SECONDS = 1.0
PROOF_INTERVAL_SECONDS = 15.0
PROOF_PATIENCE_SECONDS = 5.0


class Listener(Service):
    """Waits for notifications on the channel of all, and on one of its own."""

    name = "listener"

    def __init__(self, link: Link, wakes: Wakes) -> None:
        super().__init__(link)
        self._wakes = wakes
        self._listening_on: object = None
        self.own_channel = f"pgqueue_proof_{uuid4().hex}"
        self._proof_lock = threading.Lock()
        self._token: str | None = None
        self._token_sent_at = 0.0

    def tick(self) -> float:
        """Reconnect when needed, then hand on what arrives within a second."""
        if self._is_deaf():
            logger.warning(
                "deaf       loop=listener: its own token was not heard within %.0f s; "
                "reconnecting",
                PROOF_PATIENCE_SECONDS,
            )
            self.link.drop()
        connection = self.link.connection
        if self._listening_on is not connection:
            self._listen()
            self._listening_on = connection
            self._wakes.flag_any()
        for notice in connection.notifies(timeout=WAIT_SECONDS):
            if notice.channel == self.own_channel:
                self._heard(notice.payload)
            else:
                self._wakes.flag(notice.payload)
            if self.stopping or self._is_deaf():
                break
        return 0.0

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
