"""
Service: the base of every loop. A thread that ticks until it is told to stop.

A tick that fails does not end the loop: the connection is dropped, the next try comes
after a back-off with jitter, and the log gets a line at first and then one in ten
seconds, however long the database is away.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg

from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.wakeup import Wakeup

logger = logging.getLogger("django_pgqueue.worker")

BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX = 0.1, 5.0
LOG_INTERVAL_SECONDS = 10.0

# How long a portion stays as small as it has become.
HOLD_SECONDS = 30.0

# Held while a loop is started that nobody needed before.
STARTING = threading.Lock()

# A connection that said one of these may still be open but is of no use: it is to a
# server that became read-only (25006) or is going down (57P01 to 57P03).
USELESS = frozenset({"25006", "57P01", "57P02", "57P03"})


class Service:
    """A loop in a thread of its own."""

    name = "service"

    def __init__(self, link: Link) -> None:
        self.link = link
        # What it waits for between two ticks.
        self.wake: threading.Event | Wakeup = threading.Event()
        # Whether it was told to end; how many rounds failed, one after the other.
        self.stopping = False
        self.failures = 0
        self._busy_since: float | None = None
        self._logged_at = -LOG_INTERVAL_SECONDS
        self._thread = threading.Thread(
            target=self._run, name=f"pgqueue-{self.name}", daemon=True
        )

    def tick(self) -> float:
        """Do one round; return how many seconds to wait, at most, for the next."""
        raise NotImplementedError(f"{type(self).__name__} has no tick()")

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def call(self) -> None:
        """Wake the loop, and start it if it has not started; in any thread."""
        if self._thread.ident is None:
            with STARTING:
                if self._thread.ident is None:
                    self.start()
        self.wake.set()

    def stop(self) -> None:
        """Tell the loop to end after its current tick; does not wait."""
        self.stopping = True
        self.wake.set()

    def join(self, seconds: float) -> bool:
        """Wait for the loop to end; False when it has not."""
        if self._thread.ident is not None:
            self._thread.join(max(seconds, 0))
        return not self._thread.is_alive()

    @property
    def shown_as(self) -> str:
        """The word for it in what is told of a process's health."""
        return self.name

    @property
    def is_alive(self) -> bool:
        """Whether the loop runs, or was told to end."""
        return self.stopping or self._thread.is_alive()

    def busy_seconds(self) -> float:
        """Return for how long the current round has lasted; 0: between two."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    @contextlib.contextmanager
    def not_busy(self) -> Iterator[None]:
        """For code of others inside a round: how long it takes is watched elsewhere."""
        self._busy_since = None
        try:
            yield
        finally:
            self._busy_since = time.monotonic()

    def _run(self) -> None:
        try:
            while not self.stopping:
                self._busy_since = time.monotonic()
                pause = self._take_turn()
                self._busy_since = None
                if not self.stopping:
                    self._rest(pause)
                self.wake.clear()
        finally:
            self._end()

    def _take_turn(self) -> float:
        """Do one round, and return the pause; other loops may share the connection."""
        with self.link.turn:
            return self._tick_safely()

    def _rest(self, pause: float) -> None:
        """Wait between two ticks."""
        if pause > 0:
            self.wake.wait(pause)

    def _end(self) -> None:
        """Tidy up after the last tick."""
        self.link.leave()

    def _tick_safely(self) -> float:
        try:
            pause = self.tick()
            self._prove()
        except BaseException as error:
            # SystemExit too, which code of others may raise in here.
            return self._failed(error)
        if self.failures:
            logger.info("recovered  loop=%s failures=%d", self.name, self.failures)
            self.failures = 0
            self._logged_at = -LOG_INTERVAL_SECONDS
        return pause

    def _prove(self) -> None:
        """
        Raise unless a tick that passed after one that failed has shown anything.

        One that found nothing to do has not even connected, so that is done here.
        """
        if self.failures and not self.stopping:
            assert self.link.connection is not None

    def _failed(self, error: BaseException) -> float:
        self.failures += 1
        if is_broken(self.link, error):
            self.link.drop()
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL_SECONDS:
            self._logged_at = now
            # A database that is away is no news in detail; anything else is a bug.
            detail = None if isinstance(error, psycopg.Error) else error
            logger.error(
                "failed     loop=%s failures=%d error=%s: %s",
                self.name,
                self.failures,
                type(error).__name__,
                str(error).strip().split("\n")[0],
                exc_info=detail,
            )
        return backoff_seconds(self.failures)


def nothing(fact: Any) -> None:
    """Do nothing: nobody is told of it."""


def is_broken(link: Link, error: BaseException) -> bool:
    """Whether the connection of *link* should be replaced after *error*."""
    if not link.is_idle:
        return True
    if isinstance(error, psycopg.Error):
        return error.sqlstate is None or error.sqlstate in USELESS
    return True


def has_lost_link(link: Link, error: BaseException) -> bool:
    """Whether *error* is of the connection, and not of one thing done by it."""
    return not link.is_open or (
        isinstance(error, psycopg.Error) and is_broken(link, error)
    )


def backoff_seconds(failures: int) -> float:
    """Return the pause after the nth failure in a row: doubling, with full jitter."""
    whole = min(BACKOFF_SECONDS_MIN * 2 ** min(failures, 10), BACKOFF_SECONDS_MAX)
    return random.uniform(BACKOFF_SECONDS_MIN, whole)


class LedService(Service):
    """A loop that works while its process leads."""

    is_leading = False

    def set_leading(self, is_leading: bool) -> None:
        """Be told by the heartbeat whether this worker leads."""
        if is_leading and not self.is_leading:
            self.wake.set()
        self.is_leading = is_leading


class Portion:
    """
    How many rows a statement takes, which somebody may end for its time.

    The role of a worker may have a statement_timeout. A statement over so many rows
    that it takes longer would be sent again, and cancelled again, for ever. So the next
    one takes half as many, down to one; and twice as many again after a while, up to
    what is usual.
    """

    def __init__(self, most: int) -> None:
        self._most = self._rows = most
        self._grow_at = 0.0

    @property
    def rows(self) -> int:
        """How many rows the next statement may take."""
        if self._rows < self._most and time.monotonic() >= self._grow_at:
            self._rows = min(2 * self._rows, self._most)
            self._hold()
        return self._rows

    def shrink(self, rows: int) -> None:
        """Note that a statement over *rows* rows was cancelled."""
        self._rows = max(min(self._rows, rows) // 2, 1)
        self._hold()

    def _hold(self) -> None:
        self._grow_at = time.monotonic() + HOLD_SECONDS
