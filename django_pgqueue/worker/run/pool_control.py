"""
Pool control: what a task's context does to its job, from inside a runner.

The job's real control is in the worker process. What a task says goes there over the
runner's socket; only an atomic ack is written here, since it belongs to the task's own
transaction.

A thread of its own sends and waits. The main thread runs the task, and TaskTimeout may
be raised in it anywhere: half-way through a message, nobody could go on.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django_pgqueue.exceptions import LeaseLost
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.context import has_ended
from django_pgqueue.tasks.outcome import Performed
from django_pgqueue.tasks.settlement import ack_within
from django_pgqueue.worker.lease.reporter import LOOK_SECONDS
from django_pgqueue.worker.run.isolation import new_thread
from django_pgqueue.worker.run.pool_messages import Answer, Call, Channel, pack, word_of

# Reports of progress are passed on at most this often; the worker stores them once a
# second.
REPORT_SECONDS = 0.2


class PendingCall:
    """A call on its way."""

    __slots__ = ("answer", "call", "done", "is_done")

    def __init__(self, call: Call | None) -> None:
        self.call = call  # None: nothing is sent, when all before it is answered.
        self.answer = Answer()
        self.is_done = False
        self.done = threading.Lock()
        self.done.acquire()


class Caller:
    """Sends calls to the worker process, one at a time."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._inbox: queue.SimpleQueue[PendingCall | None] = queue.SimpleQueue()
        self._report: deque[Mapping[str, Any]] = deque(maxlen=1)
        self._has_report = False
        self._report_at = 0.0
        self._values: deque[tuple[int, str]] = deque()
        self._has_values = False
        self._is_used = False
        # Whether the job that runs was somebody else's when its values were sent.
        self.is_lost = False

    def start(self) -> None:
        """Start the thread."""
        new_thread(self._run, name="pgqueue-pool-caller").start()

    def put(self, call: Call) -> PendingCall:
        """Send a call; returns at once."""
        self._is_used = True
        pending = PendingCall(call)
        self._inbox.put(pending)
        return pending

    def report(self, progress: Mapping[str, Any]) -> None:
        """Send a report when it is due; a later one replaces it."""
        self._is_used = True
        self._report.append(progress)
        if not self._has_report:
            self._has_report = True
            self._inbox.put(None)

    def emit(self, values: Sequence[tuple[int, str]]) -> None:
        """Send values soon, with those that gather until then; returns at once."""
        self._is_used = True
        self._values += values
        if not self._has_values:
            self._has_values = True
            self._inbox.put(None)

    def finish(self) -> None:
        """Return when everything is sent and answered; no task runs any more."""
        if self._is_used:
            pending = PendingCall(None)
            self._inbox.put(pending)
            pending.done.acquire()
            self._is_used = self.is_lost = False

    def _run(self) -> None:
        try:
            while True:
                seconds = None
                if self._report:
                    seconds = max(self._report_at - time.monotonic(), 0.0)
                try:
                    pending = self._inbox.get(timeout=seconds)
                except queue.Empty:
                    self._send_report()
                    continue
                self._send_values()
                if pending is not None:
                    self._send(pending)
        except EOFError:
            # The worker process is gone, and with it whatever this one is good for.
            os._exit(1)

    def _send(self, pending: PendingCall) -> None:
        # What was reported before is known before.
        self._send_report()
        if pending.call is not None:
            pending.answer = self._exchange(pending.call)
        pending.is_done = True
        pending.done.release()

    def _send_report(self) -> None:
        self._has_report = False
        try:
            progress = self._report.pop()
        except IndexError:
            return
        self._report_at = time.monotonic() + REPORT_SECONDS
        self._exchange(Call("report", dict(progress)))

    def _send_values(self) -> None:
        self._has_values = False
        values = [self._values.popleft() for _ in range(len(self._values))]
        if values and self._exchange(Call("emit", values)).problem == "lost":
            self.is_lost = True

    def _exchange(self, call: Call) -> Answer:
        self._channel.send(call)
        answer: Answer = self._channel.receive()
        return answer


class RunnerControl:
    """The JobControl of one job in a runner."""

    def __init__(
        self,
        caller: Caller,
        job: Claimed,
        *,
        claimed_at: float,
        worker: str,
        cancelled: Any,
    ) -> None:
        """
        Begin a job.

        Args:
            caller: To the worker process.
            job: As it was claimed.
            claimed_at: Monotonic seconds.
            worker: Whose lease it is.
            cancelled: Tells whether somebody has asked the job to stop.
        """
        self._caller = caller
        self._job = job
        self._claimed_at = claimed_at
        self._worker = worker
        self._cancelled = cancelled
        self._lock = threading.Lock()
        self._has_ended = False
        self.has_word = False
        self.word: BaseException | None = None
        self.is_settled: bool | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has asked the job to stop."""
        return bool(self._cancelled())

    def extend(self, duration: timedelta | None) -> None:
        """Let the lease end no sooner than this from now; LeaseLost, WrongState."""
        if self.has_word:
            raise has_ended(self._job.id)
        self._ask("extend", duration)

    def report(self, progress: Mapping[str, Any]) -> None:
        """Hand a report on; returns at once."""
        with self._lock:
            if self._has_ended or self.has_word:
                raise has_ended(self._job.id)
            self._caller.report(progress)

    def emit(self, values: Sequence[tuple[int, str]]) -> None:
        """Hand values on; returns at once. LeaseLost, WrongState."""
        with self._lock:
            if self._has_ended or self.has_word:
                raise has_ended(self._job.id)
            if self._caller.is_lost:
                raise LeaseLost(self._job.id, self._job.delivery)
            self._caller.emit(values)

    def say(self, error: BaseException | None) -> None:
        """Settle the job now; returns when it is committed. LeaseLost, WrongState."""
        with self._lock:
            if self._has_ended or self.has_word:
                raise has_ended(self._job.id)
            self.has_word, self.word = True, error
            pending = self._caller.put(Call("say", word_of(error)))
        self._wait(pending)
        self.is_settled = True

    def ack_within(self, cursor: Cursor, performed: Performed) -> bool | None:
        """Write the ack of an atomic task in its own transaction; LeaseLost."""
        performed.progress, performed.emitted = self._ask("acking", pack(performed))
        return ack_within(cursor, self._job, performed, worker=self._worker)

    def committed(self) -> None:
        """Tell what the transaction of ack_within() has settled."""
        self.is_settled = True
        self._ask("committed")

    def is_applied(self) -> bool:
        """Find out whether the transaction of ack_within() was committed."""
        return bool(self._ask("is_applied"))

    def finish(self) -> None:
        """End the control; from now on every call is refused."""
        with self._lock:
            self._has_ended = True
        self._caller.finish()

    def _ask(self, verb: str, argument: Any = None) -> Any:
        with self._lock:
            # A thread that the task has left behind: the next job has the socket.
            if self._has_ended:
                raise has_ended(self._job.id)
            pending = self._caller.put(Call(verb, argument))
        return self._wait(pending)

    def _wait(self, pending: PendingCall) -> Any:
        """Return the answer, whatever is raised in this thread meanwhile."""
        interrupted: BaseException | None = None
        while not pending.is_done:
            try:
                pending.done.acquire(timeout=LOOK_SECONDS)
            except BaseException as error:
                interrupted = error
        answer = pending.answer
        if answer.problem == "lost":
            self.is_settled = False if self.has_word else None
            raise LeaseLost(self._job.id, self._job.delivery)
        if answer.problem == "ended":
            raise has_ended(self._job.id)
        if answer.problem is not None:
            raise RuntimeError(answer.problem)
        if interrupted is not None:
            raise interrupted
        return answer.value
