"""
Slots: what each thread and coroutine is running, in memory that outlives the process.

The supervisor makes the table before it starts a child and reads it when the child is
dead. So it knows at once which jobs were running (a crash for each) and which were
only claimed (handed back as if never claimed), without asking anybody.
"""

from __future__ import annotations

import ctypes
from multiprocessing.context import BaseContext
from typing import Any

FIELDS = 2  # Job id, delivery.


class Slots:
    """One (job id, delivery) per thread and coroutine; id 0: it is idle."""

    def __init__(self, context: BaseContext, threads: int) -> None:
        self._cells: Any = context.RawArray(ctypes.c_longlong, threads * FIELDS)
        self._stopped: Any = context.RawValue(ctypes.c_bool, False)

    def note_stop(self) -> None:
        """
        Note that the process ends because it was told to, in a moment.

        Without this, an exit status says nothing: a job may call os._exit(0).
        """
        self._stopped.value = True

    @property
    def has_stopped(self) -> bool:
        """Whether note_stop() was called."""
        return bool(self._stopped.value)

    def enter(self, thread: int, job_id: int, delivery: int) -> None:
        """Note that *thread* is about to run a job."""
        cells, place = self._cells, thread * FIELDS
        # The id last: a reader never sees it with another job's delivery.
        cells[place] = 0
        cells[place + 1] = delivery
        cells[place] = job_id

    def leave(self, thread: int) -> None:
        """Note that *thread* has settled its job, or handed it to the settler."""
        self._cells[thread * FIELDS] = 0

    def running(self) -> list[tuple[int, int]]:
        """Return (id, delivery) of every job that is marked as running."""
        cells = list(self._cells)
        pairs = zip(cells[::FIELDS], cells[1::FIELDS], strict=True)
        return [(job_id, delivery) for job_id, delivery in pairs if job_id]
