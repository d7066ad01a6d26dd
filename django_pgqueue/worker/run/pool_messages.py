"""
Pool messages: what a worker process and its runners say to one another.

Over a socket between two processes of the same program, so they are pickled. Nothing
of a task travels as an object: arguments and results are the JSON text that they are
in the database, and an exception becomes words.
"""

from __future__ import annotations

import contextlib
import ctypes
import pickle
import socket
import struct
import time
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple

from django_pgqueue.exceptions import RemoteError
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.errors import class_like, message_of, traceback_of, type_of
from django_pgqueue.tasks.job_log import Line
from django_pgqueue.tasks.outcome import Outcome, Performed, Shared
from django_pgqueue.tasks.raised import AskedAgain, Reject, RetryLater

HEAD = struct.Struct("=Q")
CHUNK_BYTES = 65_536

GONE = "The other process is gone."

FLAGS = 2  # The number of the job that was begun last, and of that to be cancelled.


class Ready(NamedTuple):
    """From a runner: it can take a job; or it ends, because of a limit."""

    leaves_because: str | None = None


class Work(NamedTuple):
    """To a runner: run this."""

    number: int  # Of this place, ever rising.
    job: Claimed
    claimed_at: float  # Monotonic, which is one clock for all processes of a machine.
    installation: str
    others: list[Claimed]  # Of the run that the job leads.


class Call(NamedTuple):
    """From a runner: what a task's context asks of its job."""

    verb: str
    argument: Any = None


class Answer(NamedTuple):
    """To a runner, after each call."""

    value: Any = None
    problem: str | None = None  # "lost", "ended", or what else went wrong.


class Ended(NamedTuple):
    """From a runner: how the job ended."""

    performed: Packed
    # And the others of its run. Where that is the run's own error, only its outcome.
    # None of one: it did not start.
    others: list[Packed | Outcome | None]


class Failure(NamedTuple):
    """An exception in words."""

    module: str
    qualname: str
    message: str
    traceback: str


class Packed(NamedTuple):
    """A Performed that can travel."""

    outcome: Outcome
    failure: Failure | None
    ran_seconds: float | None
    result: str | None
    note: str | None
    settled: bool | None
    progress: str | None
    leaves_no_trace: bool
    log: list[Line] | None = None


class Channel:
    """One end of the socket. One thread sends and receives at a time."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._buffer = bytearray()

    def send(self, message: Any) -> None:
        """
        Send a message.

        Raises:
            EOFError: The other process is gone.
        """
        text = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        try:
            self._end.settimeout(None)
            self._end.sendall(HEAD.pack(len(text)) + text)
        except OSError as error:
            raise EOFError(GONE) from error

    def receive(self, until: float | None = None) -> Any:
        """
        Return the next message.

        Args:
            until: Monotonic seconds.

        Raises:
            EOFError: The other process is gone.
            TimeoutError: Nothing came until then. What has come is kept.
        """
        while True:
            message = self._take()
            if message is not None:
                return message
            seconds = None if until is None else max(until - time.monotonic(), 0.001)
            try:
                self._end.settimeout(seconds)
                chunk = self._end.recv(CHUNK_BYTES)
            except TimeoutError:
                if until is not None and time.monotonic() >= until:
                    raise
                continue
            except OSError as error:
                raise EOFError(GONE) from error
            if not chunk:
                raise EOFError(GONE)
            self._buffer += chunk

    def hang_up(self) -> None:
        """End what the other side, or another thread of ours, waits for."""
        # It may be over already.
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self._end.close()

    def _take(self) -> Any:
        if len(self._buffer) < HEAD.size:
            return None
        end = HEAD.size + HEAD.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        message = pickle.loads(memoryview(self._buffer)[HEAD.size : end])  # noqa: S301
        del self._buffer[:end]
        return message


def pack(performed: Performed) -> Packed:
    """Return a Performed as it can travel."""
    error = performed.error
    return Packed(
        outcome=performed.outcome,
        failure=None
        if error is None
        else Failure(
            *type_of(error),
            message_of(error),
            traceback_of(error),
        ),
        ran_seconds=performed.ran_seconds,
        result=performed.result,
        note=performed.note,
        settled=performed.settled,
        progress=performed.progress,
        leaves_no_trace=performed.leaves_no_trace,
        log=performed.log,
    )


def unpack(packed: Packed) -> Performed:
    """Return what was packed, with a stand-in for the exception."""
    failure = packed.failure
    return Performed(
        outcome=packed.outcome,
        error=None if failure is None else stand_in(failure),
        ran_seconds=packed.ran_seconds,
        result=packed.result,
        note=packed.note,
        settled=packed.settled,
        progress=packed.progress,
        leaves_no_trace=packed.leaves_no_trace,
        log=packed.log,
    )


def pack_others(
    performed: Performed, others: Sequence[Performed]
) -> list[Packed | Outcome | None]:
    """Return what became of the others of a run as it can travel."""
    return [
        other.outcome if other.error is performed.error else pack(other)
        for other in others
    ]


def unpack_others(
    performed: Performed, others: list[Packed | Outcome | None]
) -> list[Performed | None]:
    """Return what was packed; *performed*: how the run ended, unpacked."""
    words = None
    if performed.error is not None:
        words = message_of(performed.error), traceback_of(performed.error)
    return [
        other
        if other is None
        else unpack(other)
        if isinstance(other, Packed)
        else Shared(
            other,
            performed.error,
            performed.ran_seconds,
            performed.result,
            performed.note,
            leaves_no_trace=performed.leaves_no_trace,
            words=words,
        )
        for other in others
    ]


def stand_in(failure: Failure) -> RemoteError:
    """Return an exception that shows as the one that was raised elsewhere."""
    kind = class_like(failure.module, failure.qualname)
    return kind(failure.message, failure.traceback)


def word_of(error: BaseException | None) -> tuple[str, Any]:
    """Return what a task has said of its job, as it can travel; see JobControl.say."""
    if error is None:
        return "ack", None
    if isinstance(error, Reject):
        return "reject", error.why
    if isinstance(error, RetryLater):
        return "later", error.delay.total_seconds()
    assert isinstance(error, AskedAgain), error
    return "again", None


def error_of(word: tuple[str, Any]) -> BaseException | None:
    """Return what word_of() was given."""
    kind, value = word
    if kind == "ack":
        return None
    if kind == "reject":
        return Reject(value)
    if kind == "later":
        return RetryLater(timedelta(seconds=value))
    return AskedAgain()


class PoolFlags:
    """
    What a worker process and its runners tell each other without a message.

    Two numbers for each place in the pool, in shared memory that is made before the
    runners: the worker sees whether a job was begun by a runner that is dead, and the
    runner whether its job was asked to stop.
    """

    def __init__(self, context: BaseContext, places: int) -> None:
        self._numbers: Any = context.RawArray(ctypes.c_longlong, places * FLAGS)

    def begin(self, place: int, number: int) -> None:
        """Note that the runner in *place* takes job *number* in hand."""
        self._numbers[place * FLAGS] = number

    def has_begun(self, place: int, number: int) -> bool:
        """Whether it has."""
        return bool(self._numbers[place * FLAGS] == number)

    def cancel(self, place: int, number: int) -> None:
        """Note that job *number* of the runner in *place* is to stop."""
        self._numbers[place * FLAGS + 1] = number

    def is_cancelled(self, place: int, number: int) -> bool:
        """Whether it is."""
        return bool(self._numbers[place * FLAGS + 1] == number)
