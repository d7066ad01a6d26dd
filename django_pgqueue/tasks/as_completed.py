"""As completed: results one by one, as their jobs end."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Generic, TypeVar, overload

from django_pgqueue.exceptions import shown
from django_pgqueue.options.durations import Duration
from django_pgqueue.queues.find import find, live
from django_pgqueue.tasks import database
from django_pgqueue.tasks.pending import Pending
from django_pgqueue.tasks.result import ENDED, JobResult
from django_pgqueue.tasks.workflow_result import Member, PendingMembers, WorkflowResult

R = TypeVar("R")
T = TypeVar("T")

# Of one statement.
IDS_MAX = 10_000


@overload
def as_completed(
    results: WorkflowResult, timeout: Duration | None = None
) -> AsCompleted[Member]: ...
@overload
def as_completed(
    results: Iterable[JobResult[R]], timeout: Duration | None = None
) -> AsCompleted[JobResult[R]]: ...
def as_completed(
    results: WorkflowResult | Iterable[JobResult[R]], timeout: Duration | None = None
) -> AsCompleted[Member] | AsCompleted[JobResult[R]]:
    """
    Give results as their jobs end, each once, to ``for`` and to ``async for``.

        for result in as_completed(resize.bulk(items), timeout="10m"):
            print(result.id, result.get())

    What a job has come to is known then, so that get() asks nobody and returns, or
    raises. A job that is in no table any more counts as ended, and its get() raises
    JobNotFound. Of two results of one job, the first is given.

    Of a group or a batch, its members are given, with their places; those that it has
    when first asked for one, not what is added later. Once it has ended, those that
    never ran are given as well.

    Args:
        results: From delay(), bulk() or by hand; or that of a group or a batch.
        timeout: For all of them, a duration from this call on; 0: those that have ended
            already; None: without end.

    Raises:
        ResultTimeout: Some have not ended within the timeout.
        WrongState: Some have not ended, and a transaction is open here; or without a
            timeout, in a TestCase.
        TypeError: One of them is no JobResult.
        ValueError: The timeout is no duration.
    """
    if isinstance(results, WorkflowResult):
        return AsCompleted(PendingMembers(results.id, timeout))
    return AsCompleted(PendingJobs(results, timeout))


class AsCompleted(Generic[T]):
    """The iterator, for sync code and for async code, that as_completed() returns."""

    def __init__(self, pending: Pending[T]) -> None:
        # These do not know this object: who drops it ends the wait at once.
        self._iterator = pending.iterate()
        self._async_iterator = pending.iterate_async()

    def __iter__(self) -> AsCompleted[T]:
        return self

    def __next__(self) -> T:
        return next(self._iterator)

    def __aiter__(self) -> AsCompleted[T]:
        return self

    async def __anext__(self) -> T:
        return await anext(self._async_iterator)


class PendingJobs(Pending[JobResult[R]]):
    """Results whose jobs have not ended, as far as is known."""

    def __init__(
        self, results: Iterable[JobResult[R]], timeout: Duration | None
    ) -> None:
        pending: dict[int, JobResult[R]] = {}
        for result in results:
            if not isinstance(result, JobResult):
                raise TypeError(f"{shown(result)} is no JobResult")
            pending.setdefault(result.id, result)
        super().__init__(pending, timeout)

    def _find_all(self) -> list[JobResult[R]]:
        alive: set[int] = set()
        with database.cursor() as cursor:
            ids = list(self._pending)
            for start in range(0, len(ids), IDS_MAX):
                alive |= live(cursor, ids[start : start + IDS_MAX])
        return self._find(self._pending.keys() - alive)

    def _find(self, some: Collection[int]) -> list[JobResult[R]]:
        """Return those of *some* that have indeed ended, in the order of their ids."""
        ids = sorted(some)
        ended = []
        for start in range(0, len(ids), IDS_MAX):
            chunk = ids[start : start + IDS_MAX]
            with database.cursor() as cursor:
                found = find(cursor, chunk)
            for job_id in chunk:
                what = found.get(job_id)
                # One that came back from the dead letters has not.
                if what is None or what.status in ENDED:
                    result = self._pending.pop(job_id)
                    result._found, result._is_fresh = what, what is not None
                    ended.append(result)
        return ended

    def _ids(self, ended: Iterable[JobResult[R]]) -> list[int]:
        return [result.id for result in ended]

    def _refuse_in_vain(self) -> None:
        first = next(iter(self._pending.values()))
        first._refuse_in_vain(is_endless=self._is_endless)
