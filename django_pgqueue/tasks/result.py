"""Result: what became of a job, and what its caller can still do to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import (
    JobFailed,
    JobNotFound,
    ResultTimeout,
    WrongState,
)
from django_pgqueue.options.durations import Duration
from django_pgqueue.queues.find import Found, find
from django_pgqueue.tasks.database import (
    has_test_case,
    has_transaction,
    in_thread,
    twin,
)
from django_pgqueue.tasks.payload import decode_result

if TYPE_CHECKING:
    from django.db.models import Model

    from django_pgqueue.tasks.output import Emitted

R = TypeVar("R", covariant=True)
T = TypeVar("T")

FAILED = ("dead", "cancelled", "expired")
ENDED = (*FAILED, "succeeded")


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
    # Whether as_completed() has read its end, and nobody has asked for that since.
    _is_fresh: bool = field(default=False, init=False)

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
        self._found, self._is_fresh = found[self.id], False
        return self

    arefresh = twin(refresh)

    def get(self, timeout: Duration | None = None) -> R:
        """
        Wait until the job has succeeded, and return what the task returned.

        Looks at once; then the worker that has settled the job says so, which takes a
        few milliseconds. Without LISTEN it looks ever less often, down to twice a
        second. No transaction is held open meanwhile.

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
        from django_pgqueue.tasks.waiting import wait_until

        if not self._was_ended():
            wait_until([self.id], timeout, lambda: self._has_ended(timeout))
        return self._outcome()

    async def aget(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - As get().
        """Wait for the result from async code, without blocking it; as get()."""
        from django_pgqueue.tasks.waiting import await_until

        if not self._was_ended():
            await await_until([self.id], timeout, lambda: self._has_ended(timeout))
        # A model instance in the result is fetched.
        return await in_thread(self._outcome)

    def stream(
        self, *, after: int = 0, timeout: Duration | None = None
    ) -> Iterator[Emitted]:
        """
        Give what the task emits by ctx.emit(), as it comes, until the job has ended.

            for part in result.stream(timeout="5m"):
                print(part.value, end="")

        First what is there already. An attempt that fails and its successor are both
        given: of the successor's first value, ``is_restart`` says that the task has
        begun anew. Without LISTEN it looks ever less often, down to twice a second.

        Args:
            after: The sequence of the value that was read last, to go on from there;
                0: from the beginning.
            timeout: How long to wait in all, a duration; 0: give what is there; None:
                without end.

        Raises:
            JobFailed, ResultTimeout, JobNotFound, WrongState, UndecodablePayload: As
                get(); the first three after the last value.
            TypeError, ValueError: after is no sequence, or the timeout no duration.
        """
        from django_pgqueue.tasks.output import Stream

        return Stream(JobResult(self.id), after=after, timeout=timeout).iterate()

    def astream(
        self, *, after: int = 0, timeout: Duration | None = None
    ) -> AsyncIterator[Emitted]:
        """Give what the task emits to ``async for``; as stream()."""
        from django_pgqueue.tasks.output import Stream

        return Stream(JobResult(self.id), after=after, timeout=timeout).iterate_async()

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

    acancel = twin(cancel)

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

    aretry = twin(retry)

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

    aedit = twin(edit)

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
        text, what = self._read().result, f"The result of job {self.id}"
        value: R | None = decode_result(text, what)
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

    def _was_ended(self) -> bool:
        """Whether as_completed() has just read how it ended."""
        was_fresh, self._is_fresh = self._is_fresh, False
        return was_fresh

    def _is_over(self) -> bool:
        """Read the job again; return whether it has ended."""
        return self.refresh().status in ENDED

    def _has_ended(self, timeout: Duration | None) -> bool:
        """Look again; raise WrongState where waiting would be in vain."""
        ended = self._is_over()
        if not ended:
            self._refuse_in_vain(is_endless=timeout is None)
        return ended

    def _refuse_in_vain(self, *, is_endless: bool) -> None:
        """Raise WrongState if it cannot end while somebody waits for it here."""
        refuse_vain_wait(self.id, self.status, is_endless=is_endless)

    def _refuse_failed(self) -> None:
        """Raise JobFailed if it has failed, as it was read last."""
        status = self.status
        if status in FAILED:
            message = words_of(self.errors[-1]) if self.errors else ""
            raise JobFailed(self.id, status, self.reason, message)

    def _not_ended(self) -> ResultTimeout:
        """Return the error for a wait in vain, as the job was read last."""
        status = self.status
        told = f"Job {self.id} is {status}; it has not ended within the timeout."
        if status == "ready":
            told += " manage.py pgqueue doctor says whether a worker serves its queue."
        return ResultTimeout(told)

    def _outcome(self) -> R:
        """Return the result as it was read last; raise where there is none."""
        self._refuse_failed()
        status = self.status
        if status != "succeeded":
            raise self._not_ended()
        value: R = self.result  # type: ignore[assignment]  # None is what it returned.
        return value

    def __repr__(self) -> str:
        return f"<JobResult {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobResult) and self.id == other.id

    def __hash__(self) -> int:
        return hash((JobResult, self.id))


def words_of(error: Mapping[str, Any]) -> str:
    """Return what an entry of a job's errors says: a class and its message."""
    return ": ".join(str(error[k]) for k in ("type", "message") if error.get(k))


def refuse_vain_wait(
    number: int, status: str, *, is_endless: bool, what: str = "Job"
) -> None:
    """
    Raise WrongState where waiting would be in vain.

    Args:
        number: Of what is waited for.
        status: Its state.
        is_endless: Whether there is no timeout.
        what: "Job" or "Workflow".
    """
    from django.db import connections

    connection = connections[get_settings().database]
    if has_transaction(connection):
        raise WrongState(
            number,
            status,
            f"a transaction is open on {connection.alias!r}, and workers do not "
            f"see what it enqueued before it commits. Call get() after it.",
            what=what,
        )
    if is_endless and has_test_case(connection):
        raise WrongState(
            number,
            status,
            "workers do not see what a TestCase enqueues. Run it first, with "
            "django_pgqueue.testing.drain().",
            what=what,
        )
