"""Output: what one attempt of a task emits, numbered, as JSON, and within bounds."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from django_pgqueue.exceptions import (
    InvalidArgument,
    JobNotFound,
    OutputFull,
    PayloadTooLarge,
    ResultTimeout,
    shown,
)
from django_pgqueue.options.durations import Duration
from django_pgqueue.queues import output
from django_pgqueue.tasks import database
from django_pgqueue.tasks.payload import decode_result, encode_value
from django_pgqueue.tasks.pending import Pending
from django_pgqueue.tasks.waiting import Ear, Wait, output_key

# Of one value, as JSON.
VALUE_BYTES_MAX = 65_536

# Of one attempt.
VALUES_MAX = 100_000
OUTPUT_BYTES_MAX = 8 * 2**20


class Output:
    """The values of an attempt, of which only the count is kept. Threads share it."""

    __slots__ = ("_bytes", "_count", "_job", "_lock", "_task")

    def __init__(self, job: int, task: str) -> None:
        self._job, self._task = job, task
        # Held until a value is handed on: the order of numbers is that of writing.
        self._lock = threading.Lock()
        self._count = 0
        self._bytes = 0

    def emit(
        self, value: Any, hand_on: Callable[[list[tuple[int, str]]], None]
    ) -> None:
        """
        Hand a value on, with its number.

        Args:
            value: What the task emits.
            hand_on: The control's emit().

        Raises:
            InvalidArgument: It cannot travel.
            PayloadTooLarge: It takes more than 64 KiB.
            OutputFull: The attempt has emitted what it may.
            LeaseLost, WrongState: As the control.
        """
        try:
            text = encode_value(value)
        except ValueError as error:
            raise InvalidArgument(
                task=self._task, path="emit()", problem=f"cannot be told: {error}"
            ) from None
        size = len(text.encode())
        if size > VALUE_BYTES_MAX:
            raise PayloadTooLarge(
                task=self._task,
                payload_bytes=size,
                payload_bytes_max=VALUE_BYTES_MAX,
                what="an emitted value",
                way_out="Emit it in parts, or store it and emit its primary key",
                setting=None,
            )
        with self._lock:
            if self._count >= VALUES_MAX or self._bytes + size > OUTPUT_BYTES_MAX:
                raise OutputFull(
                    self._job,
                    values=self._count,
                    values_max=VALUES_MAX,
                    size=self._bytes + size,
                    size_max=OUTPUT_BYTES_MAX,
                )
            hand_on([(self._count + 1, text)])
            self._count += 1
            self._bytes += size


# Job log ------------------------------------------------------------------------------


# Of one attempt: half of them are its first lines, and half its latest.
LINES_MAX = 200
LOG_BYTES_MAX = 16_384
LINE_CHARACTERS_MAX = 1_000

# Seconds since the attempt began, and the text.
Line = tuple[float, str]


class JobLog:
    """The lines of an attempt: the first and the latest. Threads share it."""

    __slots__ = ("_began", "_bytes", "_first", "_latest", "_lock", "_out")

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._first: list[Line] = []
        self._latest: deque[Line] = deque()
        # Of the first lines, and of the latest.
        self._bytes = [0, 0]
        # Of the latest, how many had to go.
        self._out = 0

    def add(self, text: str) -> None:
        """Write a line, which is cut to 1,000 characters."""
        # What PostgreSQL cannot store is shown escaped: NUL, and surrogates.
        text = text[:LINE_CHARACTERS_MAX].replace("\x00", "\\x00")
        text = text.encode(errors="backslashreplace").decode()
        size = len(text.encode())
        with self._lock:
            line = round(time.monotonic() - self._began, 3), text
            is_first = not self._latest and len(self._first) < LINES_MAX // 2
            if is_first and self._bytes[0] + size <= LOG_BYTES_MAX // 2:
                self._first.append(line)
                self._bytes[0] += size
                return
            self._latest.append(line)
            self._bytes[1] += size
            while self._has_too_many():
                self._bytes[1] -= len(self._latest.popleft()[1].encode())
                self._out += 1

    def _has_too_many(self) -> bool:
        is_full = len(self._latest) > LINES_MAX // 2
        return is_full or self._bytes[1] > LOG_BYTES_MAX // 2

    def lines(self) -> list[Line] | None:
        """Return what is kept, in its order; None: nothing was written."""
        with self._lock:
            left_out: list[Line] = []
            if self._out:
                at = self._latest[0][0] if self._latest else 0.0
                left_out = [(at, f"… {self._out:,} lines are left out …")]
            return [*self._first, *left_out, *self._latest] or None


# Stream -------------------------------------------------------------------------------


# As PostgreSQL has them.
SEQUENCE_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Emitted:
    """
    A value that a task has emitted.

    Attributes:
        value: What ctx.emit() was given.
        sequence: Of the job's values, ever rising; stream(after=…) goes on behind it.
        attempt: Which attempt of the job has emitted it.
        is_restart: The task has begun anew since the value before: whoever shows them
            as one text begins anew, too.
        emitted_at: When it was stored, by the database's clock.
    """

    value: Any
    sequence: int
    attempt: int
    is_restart: bool
    emitted_at: datetime


class Result(Protocol):
    """What a stream asks of a JobResult."""

    id: int

    @property
    def status(self) -> str:
        """As it was read last."""

    def _is_over(self) -> bool:
        """Read the job again; return whether it has ended; JobNotFound."""

    def _not_ended(self) -> ResultTimeout:
        """Return the error for a wait in vain."""

    def _refuse_failed(self) -> None:
        """Raise JobFailed if it has failed."""

    def _refuse_in_vain(self, *, is_endless: bool) -> None:
        """Raise WrongState where waiting would be in vain."""


class Stream(Pending[Emitted]):
    """The values of one job that were not given yet."""

    def __init__(self, result: Result, *, after: int, timeout: Duration | None) -> None:
        self._after = checked_sequence(after)
        self._result = result
        self._key = output_key(result.id)
        self._has_ended = False
        self._gone: JobNotFound | None = None
        # Whether the last look found as much as one may.
        self._has_more = False
        super().__init__({result.id: None, self._key: None}, timeout)

    def _find_all(self) -> list[Emitted]:
        # In this order: what a job has emitted is stored before its end is.
        if not self._has_ended:
            try:
                self._has_ended = self._result._is_over()
            except JobNotFound as gone:
                self._has_ended, self._gone = True, gone
        return self._read()

    def _find(self, some: Collection[int]) -> list[Emitted]:
        return self._find_all() if self._result.id in some else self._read()

    def _ids(self, ended: Iterable[Emitted]) -> list[int]:
        return []

    def _look(self, by: Ear | None, wait: Wait) -> list[Emitted]:
        if self._has_more:
            return self._read()
        return super()._look(by, wait)

    def _rest_seconds(self) -> float:
        return 0.0 if self._has_more else super()._rest_seconds()

    def _read(self) -> list[Emitted]:
        with database.cursor() as cursor:
            rows = output.read(cursor, self._result.id, after=self._after)
        self._has_more = len(rows) == output.READ_ROWS_MAX
        if self._has_ended and not self._has_more:
            self._pending.clear()
        return [self._emitted(row) for row in rows]

    def _emitted(self, row: output.Row) -> Emitted:
        what = f"Value {row.sequence} that job {self._result.id} has emitted"
        value = decode_result(row.value, what)
        before, self._after = self._after, row.sequence
        is_restart = before > 0 and row.delivery != output.delivery_of(before)
        return Emitted(value, row.sequence, row.attempt, is_restart, row.emitted_at)

    def _refuse_in_vain(self) -> None:
        if not self._has_ended:
            self._result._refuse_in_vain(is_endless=self._is_endless)

    def _refuse_rest(self) -> None:
        if self._gone is not None:
            raise self._gone
        if self._pending:
            raise self._result._not_ended()
        self._result._refuse_failed()


def checked_sequence(after: object) -> int:
    """Return the sequence of a value, or 0; raise TypeError or ValueError."""
    if isinstance(after, bool) or not isinstance(after, int):
        raise TypeError(
            f"stream(after={shown(after)}): it must be the sequence of a value, a "
            f"whole number, or 0."
        )
    if not 0 <= after <= SEQUENCE_MAX:
        raise ValueError(f"stream(after={after}): it must be from 0 to 2^63 - 1.")
    return after
