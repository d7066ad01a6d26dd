"""Output: what one attempt of a task emits, numbered, as JSON, and within bounds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django_pgqueue.exceptions import InvalidArgument, OutputFull, PayloadTooLarge
from django_pgqueue.tasks.payload import encode_value

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
