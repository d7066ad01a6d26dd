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
    """Many share it, or one has it alone; who waits to be alone goes first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._waiting_alone = 0
        self._is_alone = False

    @property
    def is_closed(self) -> bool:
        """Whether somebody is alone, or waits to be."""
        return self._is_alone or bool(self._waiting_alone)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Run beside others that share."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._is_alone and not self._waiting_alone
            )
            self._sharing += 1
        try:
            yield
        finally:
            self.leave()

    def try_enter(self) -> bool:
        """Share it if that needs no waiting; leave() ends it. For an event loop."""
        with self._changed:
            if self.is_closed:
                return False
            self._sharing += 1
            return True

    def leave(self) -> None:
        """End one share."""
        with self._changed:
            self._sharing -= 1
            if not self._sharing:
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run when nobody else does; others wait until this is over."""
        with self._changed:
            self._waiting_alone += 1
            self._changed.wait_for(lambda: not self._is_alone and not self._sharing)
            self._waiting_alone -= 1
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()
