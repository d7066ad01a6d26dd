"""
Stop flag: what tells a run to stop, also from the handler of a signal.

A handler runs in the main thread, between any two steps of it, and another signal
interrupts the handler. threading.Event takes a lock to be set, which this very thread
may hold already: then it would wait for ever.
"""

from __future__ import annotations

from threading import Event


class StopFlag:
    """Set by whoever wants a run to stop. Takes no lock, and cannot be waited for."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Let the run stop."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether the run is to stop."""
        return self._is_set


# What a run looks at.
Stoppable = StopFlag | Event
