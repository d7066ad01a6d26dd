"""Stream: what a task emits, given to whoever waits for it as it comes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from django_pgqueue.exceptions import (
    JobNotFound,
    ResultTimeout,
    UndecodablePayload,
    shown,
)
from django_pgqueue.options.durations import Duration
from django_pgqueue.queues import output
from django_pgqueue.tasks import database
from django_pgqueue.tasks.payload import decode_value
from django_pgqueue.tasks.pending import Pending
from django_pgqueue.tasks.raised import Reject
from django_pgqueue.tasks.waiting import Ear, Wait, output_key

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
        try:
            value = decode_value(row.value)
        except Reject as gone:
            raise UndecodablePayload(
                f"Value {row.sequence} that job {self._result.id} has emitted cannot "
                f"be read: {gone}"
            ) from None
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
