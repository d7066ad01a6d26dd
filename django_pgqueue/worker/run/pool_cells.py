"""
Pool cells: what a worker process and its runners tell each other without a message.

In shared memory, made before the runners: the worker sees whether a job was begun by a
runner that is dead, and the runner whether its job was asked to stop.
"""

from __future__ import annotations

import ctypes
from multiprocessing.context import BaseContext
from typing import Any

FIELDS = 2  # The number of the job that was begun last, and of that to be cancelled.


class Cells:
    """Two numbers for each place in the pool."""

    def __init__(self, context: BaseContext, places: int) -> None:
        self._cells: Any = context.RawArray(ctypes.c_longlong, places * FIELDS)

    def begin(self, place: int, number: int) -> None:
        """Note that the runner in *place* takes job *number* in hand."""
        self._cells[place * FIELDS] = number

    def has_begun(self, place: int, number: int) -> bool:
        """Whether it has."""
        return bool(self._cells[place * FIELDS] == number)

    def cancel(self, place: int, number: int) -> None:
        """Note that job *number* of the runner in *place* is to stop."""
        self._cells[place * FIELDS + 1] = number

    def is_cancelled(self, place: int, number: int) -> bool:
        """Whether it is."""
        return bool(self._cells[place * FIELDS + 1] == number)
