"""
Gate: lets a job run alone in its process.

A job whose process died under it runs alone the next time, so that it takes nobody
with it a second time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """
    Many share it, or one has it alone; who waits to be alone goes first.

    To share takes no lock: whoever enters says so first and then looks whether it is
    closed, and whoever closes it does so first and then looks who is inside. Each is
    one operation of the interpreter, so at least one of the two sees the other.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: set[int] = set()
        self._waiting_alone = 0
        self._is_alone = False
        # Whether somebody is alone, or waits to be.
        self.is_closed = False

    def enter(self, key: int) -> bool:
        """Share it, as *key*, until leave(); False: it is closed. Never waits."""
        self._inside.add(key)
        if self.is_closed:
            self.leave(key)
            return False
        return True

    def leave(self, key: int) -> None:
        """End a share."""
        self._inside.discard(key)
        if self.is_closed:
            with self._changed:
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run when nobody else does; others wait until this is over."""
        with self._changed:
            self._waiting_alone += 1
            self.is_closed = True
            self._changed.wait_for(lambda: not self._is_alone and not self._inside)
            self._waiting_alone -= 1
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self.is_closed = bool(self._waiting_alone)
                self._changed.notify_all()
