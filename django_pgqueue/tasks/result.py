"""Result: what became of a job, and what its caller can still do to it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import (
    JobFailed,
    JobNotFound,
    ResultTimeout,
    UndecodablePayload,
    WrongState,
)
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.queues.find import Found, find
from django_pgqueue.tasks.database import in_thread
from django_pgqueue.tasks.open_transaction import has_test_case, has_transaction
from django_pgqueue.tasks.payload import decode_value
from django_pgqueue.tasks.raised import Reject

if TYPE_CHECKING:
    from django.db.models import Model

R = TypeVar("R", covariant=True)
T = TypeVar("T")

# Between two looks of get(): the first pauses are short, since most jobs are; a long
# one costs two queries a second.
GET_PAUSE_SECONDS_MIN, GET_PAUSE_SECONDS_MAX = 0.01, 0.5
GET_PAUSE_GROWTH = 1.5

FAILED = ("dead", "cancelled", "expired")


@dataclass(slots=True, eq=False, repr=False)
class JobResult(Generic[R]):
    """
    A handle on one job.

    Everything but ``id``, ``created`` and ``conflict`` is read from the database once,
    when first asked for, and again by refresh() and get(). Each method has a twin for
    async code, a… .

    Attributes:
        id: Of the job; where it was not stored, of the one that stands for it.
        conflict: What became of the call where it has not: "skipped", "replaced",
            "rescheduled", "debounced" or "throttled"; else None.
    """

    id: int
    _: KW_ONLY
    conflict: str | None = None
    _found: Found | None = field(default=None, init=False)

    @property
    def created(self) -> bool:
        """Whether the call that returned this has stored the job."""
        return self.conflict is None

    def refresh(self) -> JobResult[R]:
        """
        Read the job's state again: one query over queue, archive and dead letters.

        Raises:
            JobNotFound: It was never committed, or its retention has passed.
        """
        from django.db import connections

        with connections[get_settings().database].cursor() as cursor:
            found = find(cursor, [self.id])
        if self.id not in found:
            raise JobNotFound(self.id)
        self._found = found[self.id]
        return self

    async def arefresh(self) -> JobResult[R]:
        """Read the job's state again, from async code; as refresh()."""
        return await in_thread(self.refresh)

    def get(self, timeout: Duration | None = None) -> R:
        """
        Wait until the job has succeeded, and return what the task returned.

        Looks again after 10 ms, then ever less often, down to twice a second; no
        transaction is held open meanwhile.

        Args:
            timeout: How long to wait, a duration; 0: look once; None: without end.

        Raises:
            JobFailed: The job is dead, cancelled or expired.
            ResultTimeout: It has not ended within the timeout.
            JobNotFound: It was never committed, or its retention has passed.
            UndecodablePayload: Its result cannot be read: a model instance in it is
                gone, say.
            WrongState: It has not ended, and a transaction is open here: workers
                would not see the job before it commits.
            ValueError: The timeout is no duration.
        """
        for pause in self._pauses(timeout):
            if self._has_ended(timeout):
                break
            time.sleep(pause)
        return self._outcome()

    async def aget(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - As get().
        """Wait for the result from async code, without blocking it; as get()."""
        for pause in self._pauses(timeout):
            if await in_thread(self._has_ended, timeout):
                break
            await asyncio.sleep(pause)
        # A model instance in the result is fetched.
        return await in_thread(self._outcome)

    def cancel(self) -> bool:
        """
        Cancel the job: archive it if it waits, ask it to stop if it runs.

        A running task sees ``ctx.cancelled``; an async one is cancelled at its next
        await. It stays running until then.

        Returns:
            False if the job had ended already.

        Raises:
            JobNotFound: No table holds it.
            WrongState: Somebody else holds its row just now; try again.
        """
        from django_pgqueue.tasks import operate

        answer = operate.cancel([self.id])
        self.refresh()
        if answer.locked:
            raise WrongState(
                self.id, self.status, "its row is held by somebody just now; try again."
            )
        return bool(answer.cancelled or answer.requested)

    async def acancel(self) -> bool:
        """Cancel the job from async code; as cancel()."""
        return await in_thread(self.cancel)

    def retry(self) -> bool:
        """
        Make a waiting job due now, or put a dead letter back into its queue.

        Returns:
            False if it is due, runs, is parked or has ended.

        Raises:
            JobNotFound: No table holds it.
            WrongState: It is a dead letter, and a live job has its dedup key.
        """
        from django_pgqueue.tasks import operate

        moved = operate.retry([self.id])
        self.refresh()
        if not moved and self.status == "dead":
            holder = operate.key_holders([self.id]).get(self.id)
            if holder is not None:
                raise WrongState(
                    self.id,
                    "dead",
                    f"job {holder} has its dedup key. It can go back to its queue when "
                    f"that one has ended.",
                )
        return bool(moved)

    async def aretry(self) -> bool:
        """Make the job due now from async code; as retry()."""
        return await in_thread(self.retry)

    def edit(
        self,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> JobResult[R]:
        """
        Give a waiting job or a dead letter other arguments; return this.

            result.edit(kwargs={"order_id": 8}).retry()

        Args:
            args: All positional arguments; None: they stay.
            kwargs: All keyword arguments; None: they stay.

        Raises:
            InvalidArgument: Neither is given, or they do not fit the task.
            PayloadTooLarge: They exceed PGQUEUE['PAYLOAD_BYTES_MAX'].
            JobNotFound: No table holds it.
            WrongState: It runs, or has ended.
        """
        from django_pgqueue.tasks import operate

        operate.edit(self.id, args=args, kwargs=kwargs)
        return self.refresh()

    async def aedit(
        self,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> JobResult[R]:
        """Give the job other arguments from async code; as edit()."""
        return await in_thread(lambda: self.edit(args=args, kwargs=kwargs))

    @property
    def status(self) -> str:
        """
        One of scheduled, ready, running, retrying, parked (live), succeeded,
        cancelled, expired (archive), dead (dead letters).
        """
        return self._read().status

    @property
    def attempt(self) -> int:
        """The latest attempt; 0 before the first."""
        return self._read().attempt

    @property
    def result(self) -> R | None:
        """
        What the task returned; None until it succeeded or when not stored.

        Raises:
            UndecodablePayload: A model instance in it is gone, or it cannot be read.
        """
        text = self._read().result
        try:
            value: R | None = None if text is None else decode_value(text)
        except Reject as gone:
            # Not as it is: inside another task it would reject that task's job.
            raise UndecodablePayload(
                f"The result of job {self.id} cannot be read: {gone}"
            ) from None
        return value

    @property
    def reason(self) -> str | None:
        """Why it is a dead letter; None when it is none."""
        return self._read().reason

    @property
    def errors(self) -> list[dict[str, Any]]:
        """One entry per failed attempt or crash, the oldest first."""
        errors: list[dict[str, Any]] = json.loads(self._read().errors)
        return errors

    @property
    def job(self) -> Model | None:
        """Return the row, which is a Job, an ArchivedJob, a DeadLetter, or None."""
        from django_pgqueue.models import JobReference

        return JobReference(self.id).job

    def _read(self) -> Found:
        if self._found is None:
            self.refresh()
        assert self._found is not None
        return self._found

    def _pauses(self, timeout: Duration | None) -> Iterator[float]:
        """Yield how long to pause after each look; end when there is no more to do."""
        left = None
        if timeout is not None:
            left = as_timedelta(timeout, name="timeout").total_seconds()
        started = time.monotonic()
        pause = GET_PAUSE_SECONDS_MIN
        while left is None or time.monotonic() - started < left:
            spent = time.monotonic() - started
            yield pause if left is None else max(0.0, min(pause, left - spent))
            pause = min(pause * GET_PAUSE_GROWTH, GET_PAUSE_SECONDS_MAX)
        # The last look, at the end of the time or the only one.
        yield 0.0

    def _has_ended(self, timeout: Duration | None) -> bool:
        """Look again; raise WrongState where waiting would be in vain."""
        from django.db import connections

        ended = self.refresh().status in (*FAILED, "succeeded")
        connection = connections[get_settings().database]
        if not ended and has_transaction(connection):
            raise WrongState(
                self.id,
                self.status,
                f"a transaction is open on {connection.alias!r}, and workers do not "
                f"see what it enqueued before it commits. Call get() after it.",
            )
        if not ended and timeout is None and has_test_case(connection):
            raise WrongState(
                self.id,
                self.status,
                "workers do not see what a TestCase enqueues. Run it first, with "
                "django_pgqueue.testing.drain().",
            )
        return ended

    def _outcome(self) -> R:
        """Return the result as it was read last; raise where there is none."""
        status = self.status
        if status in FAILED:
            errors = self.errors
            last = errors[-1] if errors else {}
            message = ": ".join(
                str(last[k]) for k in ("type", "message") if last.get(k)
            )
            raise JobFailed(self.id, status, self.reason, message)
        if status != "succeeded":
            raise ResultTimeout(
                f"Job {self.id} is {status}; it has not ended within the timeout."
            )
        value: R = self.result  # type: ignore[assignment]  # None is what it returned.
        return value

    def __repr__(self) -> str:
        return f"<JobResult {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobResult) and self.id == other.id

    def __hash__(self) -> int:
        return hash((JobResult, self.id))
