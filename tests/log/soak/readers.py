"""Readers: each goes through a topic's log by the horizon, and notes what it sees."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import psycopg

from django_pgqueue.log.horizon import horizons

READ = """
SELECT id FROM pgqueue_message
 WHERE topic_id = %s AND id > %s AND id <= %s ORDER BY id LIMIT %s
"""

PAUSE_SECONDS_MAX = 0.02

# Of a reader that asks for no horizon.
NO_BOUND = 2**63 - 1


class Reader(threading.Thread):
    """
    Reads one topic from *position* on; moves to the bound when it has seen all.

    That is the most that the horizon allows: whatever is at or below the position
    later was skipped.

    Args:
        is_naive: It asks for no horizon, and goes on after the last id seen.
    """

    def __init__(
        self, url: str, topic_id: int, position: int, *, batch: int, is_naive: bool
    ) -> None:
        super().__init__(daemon=True)
        self.topic_id = topic_id
        self.is_naive = is_naive
        self.seen: list[int] = []
        self.position = position
        self.error: BaseException | None = None
        self._connection = psycopg.connect(url, autocommit=True)
        self._batch = batch
        self._finishing = threading.Event()
        self._passes = 0
        self._passed = threading.Condition()

    def run(self) -> None:
        """Read until told to finish, and then what is left."""
        draw = random.Random(f"{self.topic_id}.{self._batch}")
        try:
            with self._connection:
                while True:
                    is_last = self._finishing.is_set()
                    has_all = self._read()
                    with self._passed:
                        self._passes += 1
                        self._passed.notify_all()
                    if is_last and has_all:
                        return
                    self._finishing.wait(draw.random() * PAUSE_SECONDS_MAX)
        except BaseException as error:
            with self._passed:
                self.error = error
                self._passed.notify_all()

    def wait_past(self, message_id: int, is_over: Callable[[], bool]) -> None:
        """Return when its position is higher, or nothing will make it so."""
        with self._passed:
            while self.position <= message_id:
                # A pass that is under way may have read before it was over.
                needed = self._passes + 2
                was_over = is_over()
                self._passed.wait_for(
                    lambda needed=needed: self.error or self._passes >= needed
                )
                if was_over or self.error:
                    return

    def finish(self) -> None:
        """Return when it has read what is there now."""
        self._finishing.set()
        self.join()
        if self.error is not None:
            raise self.error

    def _read(self) -> bool:
        cursor = self._connection.cursor()
        bound = NO_BOUND
        if not self.is_naive:
            bound = horizons(cursor).of(self.topic_id)
        values = (self.topic_id, self.position, bound, self._batch)
        ids = [row[0] for row in cursor.execute(READ, values)]
        self.seen += ids
        if len(ids) == self._batch or self.is_naive:
            self.position = max(ids, default=self.position)
            return len(ids) < self._batch
        # A bound may be lower than an earlier one; a position never goes back.
        self.position = max(self.position, bound)
        return True
