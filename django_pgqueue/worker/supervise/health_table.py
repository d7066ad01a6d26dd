"""
Health table: signs of life of every process and loop, in memory that all of them share.

A process writes its own row about once a second; the supervisor writes a few cells
beside it; the health server reads. So whoever asks after a worker's health needs no
database, and a process that is frozen shows by its silence.

Times are those of the monotonic clock, which is one for all processes of a machine.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable
from enum import IntEnum
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple

from django_pgqueue.worker.service import Service

# By the word under which loops are shown; readers share one.
LOOPS = (
    "claimer",
    "settler",
    "heartbeat",
    "listener",
    "leader",
    "scheduler",
    "reader",
)

# Of the supervisor: when it last looked around, and whether it stops.
HEAD_CELLS = 2
# Of a process: state, beat, deaths; then those of each loop: life, failures, stuck,
# waiting.
PROCESS_CELLS, LOOP_CELLS = 3, 4
ROW_CELLS = PROCESS_CELLS + LOOP_CELLS * len(LOOPS)


class State(IntEnum):
    """What a process is doing."""

    VACANT = 0  # There is none in this place.
    STARTING = 1
    RUNNING = 2
    STOPPING = 3


class Life(IntEnum):
    """Whether a loop is there."""

    ABSENT = 0  # This process has no such loop.
    ALIVE = 1
    ENDED = 2


class Loop(NamedTuple):
    """One loop, as its process last saw it."""

    name: str
    life: Life
    failures: int  # In a row.
    stuck_seconds: float  # In one round, in Python code.
    waiting_seconds: float  # In one round, for the database.


class ProcessHealth(NamedTuple):
    """One process."""

    state: State
    silent_seconds: float
    early_deaths: int  # Processes in this place that died at their start, in a row.
    loops: list[Loop]


class Head(NamedTuple):
    """The supervisor."""

    silent_seconds: float
    is_stopping: bool


class HealthRow:
    """What one process writes: its own row of the table."""

    def __init__(self, table: HealthTable, place: int) -> None:
        self._table = table
        self._place = place

    def note(self, state: State, services: Iterable[Service] = ()) -> None:
        """Write what this process is doing, and how its loops are."""
        self._table.note_loops(self._place, services)
        self._table.note_process(self._place, state)


class HealthTable:
    """The table; made by the supervisor before it starts any process."""

    def __init__(self, context: BaseContext, processes: int) -> None:
        self._cells: Any = context.RawArray(
            ctypes.c_double, HEAD_CELLS + ROW_CELLS * processes
        )
        self.processes = processes
        self.note_supervisor(is_stopping=False)

    def note_supervisor(self, *, is_stopping: bool) -> None:
        """Write that the supervisor lives."""
        self._cells[0] = time.monotonic()
        self._cells[1] = float(is_stopping)

    def note_process(self, place: int, state: State) -> None:
        """Write what the process in *place* is doing; it lives."""
        start = self._start(place)
        self._cells[start + 1] = time.monotonic()
        self._cells[start] = float(state)

    def note_deaths(self, place: int, deaths: int) -> None:
        """Write how many processes in *place* died at their start, in a row."""
        self._cells[self._start(place) + 2] = float(deaths)

    def note_loops(self, place: int, services: Iterable[Service]) -> None:
        """Write how the loops of the process in *place* are doing."""
        # Of several under one word the worst is written, each cell by itself.
        worst: dict[str, list[float]] = {}
        for service in services:
            if service.shown_as not in LOOPS:
                continue
            cells = _cells_of(service)
            others = worst.get(service.shown_as, cells)
            worst[service.shown_as] = list(map(max, cells, others))
        start = self._start(place) + PROCESS_CELLS
        for word, cells in worst.items():
            at = start + LOOP_CELLS * LOOPS.index(word)
            self._cells[at : at + LOOP_CELLS] = cells

    def clear(self, place: int) -> None:
        """Forget the process that was in *place*, but for its early deaths."""
        start = self._start(place)
        self._cells[start] = float(State.VACANT)
        self._cells[start + 1] = time.monotonic()
        at = start + PROCESS_CELLS
        self._cells[at : start + ROW_CELLS] = [0.0] * (ROW_CELLS - PROCESS_CELLS)

    def head(self) -> Head:
        """Read what the supervisor wrote."""
        beat, is_stopping = self._cells[:HEAD_CELLS]
        return Head(time.monotonic() - beat, bool(is_stopping))

    def rows(self) -> list[ProcessHealth]:
        """Read what the processes wrote."""
        return [self._row(place) for place in range(self.processes)]

    def _row(self, place: int) -> ProcessHealth:
        start = self._start(place)
        cells = list(self._cells[start : start + ROW_CELLS])
        loops = []
        for number, name in enumerate(LOOPS):
            at = PROCESS_CELLS + LOOP_CELLS * number
            life, failures, stuck, waiting = cells[at : at + LOOP_CELLS]
            loops.append(Loop(name, Life(int(life)), int(failures), stuck, waiting))
        state, beat, deaths = cells[:PROCESS_CELLS]
        silent_seconds = time.monotonic() - beat
        return ProcessHealth(State(int(state)), silent_seconds, int(deaths), loops)

    @staticmethod
    def _start(place: int) -> int:
        return HEAD_CELLS + ROW_CELLS * place


def _cells_of(service: Service) -> list[float]:
    busy_seconds = service.busy_seconds()
    is_waiting = busy_seconds > 0 and service.link.is_waiting
    return [
        float(Life.ALIVE if service.is_alive else Life.ENDED),
        float(service.failures),
        0.0 if is_waiting else busy_seconds,
        busy_seconds if is_waiting else 0.0,
    ]
