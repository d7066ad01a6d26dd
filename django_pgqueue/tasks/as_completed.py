"""As completed: results one by one, as their jobs end."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Collection, Generator, Iterable
from typing import Any, Generic, TypeVar

from django_pgqueue.exceptions import ResultTimeout, shown
from django_pgqueue.options.durations import Duration
from django_pgqueue.queues.find import find, live
from django_pgqueue.tasks import database
from django_pgqueue.tasks.looks import Looks
from django_pgqueue.tasks.result import ENDED, JobResult
from django_pgqueue.tasks.waiting import Ear, Wait, Woken, ear, waiting

R = TypeVar("R")

# Of one statement.
IDS_MAX = 10_000

# That an error names.
IDS_NAMED = 5


def as_completed(
    results: Iterable[JobResult[R]], timeout: Duration | None = None
) -> AsCompleted[R]:
    """
    Give results as their jobs end, each once, to ``for`` and to ``async for``.

        for result in as_completed(resize.bulk(items), timeout="10m"):
            print(result.id, result.get())

    What a job has come to is known then, so that get() asks nobody and returns, or
    raises. A job that is in no table any more counts as ended, and its get() raises
    JobNotFound. Of two results of one job, the first is given.

    Args:
        results: From delay(), bulk() or by hand.
        timeout: For all of them, a duration from this call on; 0: those that have ended
            already; None: without end.

    Raises:
        ResultTimeout: Some have not ended within the timeout.
        WrongState: Some have not ended, and a transaction is open here; or without a
            timeout, in a TestCase.
        TypeError: One of them is no JobResult.
        ValueError: The timeout is no duration.
    """
    return AsCompleted(results, timeout)


class AsCompleted(Generic[R]):
    """The iterator, for sync code and for async code, that as_completed() returns."""

    def __init__(
        self, results: Iterable[JobResult[R]], timeout: Duration | None
    ) -> None:
        # These do not know this object: who drops it ends the wait at once.
        pending = Pending(results, timeout)
        self._iterator = pending.iterate()
        self._async_iterator = pending.iterate_async()

    def __iter__(self) -> AsCompleted[R]:
        return self

    def __next__(self) -> JobResult[R]:
        return next(self._iterator)

    def __aiter__(self) -> AsCompleted[R]:
        return self

    async def __anext__(self) -> JobResult[R]:
        return await anext(self._async_iterator)


class Pending(Generic[R]):
    """Results whose jobs have not ended, as far as is known."""

    def __init__(
        self, results: Iterable[JobResult[R]], timeout: Duration | None
    ) -> None:
        self._looks = Looks(timeout)
        self._is_endless = timeout is None
        # By id.
        self._pending: dict[int, JobResult[R]] = {}
        for result in results:
            if not isinstance(result, JobResult):
                raise TypeError(f"{shown(result)} is no JobResult")
            self._pending.setdefault(result.id, result)
        self._count = len(self._pending)

    def iterate(self) -> Generator[JobResult[R], None, None]:
        """Give them as they end, and raise for those that do not."""
        yield from self._look_at_all(hears=False)
        if not self._is_done():
            woken = threading.Event()
            by = ear()
            with waiting(by, self._pending, woken.set) as wait:
                while not self._is_done():
                    woken.wait(self._looks.seconds)
                    woken.clear()
                    yield from self._look(by, wait)
        self._refuse_rest()

    async def iterate_async(self) -> AsyncGenerator[JobResult[R], None]:
        """Give them likewise, in async code."""
        for result in await database.in_thread(self._look_at_all, False):
            yield result
        if not self._is_done():
            woken = Woken()
            by = await database.in_thread(ear)
            with waiting(by, self._pending, woken.set) as wait:
                while not self._is_done():
                    await woken.wait(self._looks.seconds)
                    for result in await database.in_thread(self._look, by, wait):
                        yield result
        self._refuse_rest()

    def _is_done(self) -> bool:
        return not self._pending or self._looks.is_over

    def _look(self, by: Ear | None, wait: Wait) -> list[JobResult[R]]:
        """Return those that have ended: of all, if it is time, or of those told."""
        told = wait.take()
        if told is None or self._looks.is_due:
            ended = self._look_at_all(wait.hears)
        else:
            ended = self._look_at(told & self._pending.keys())
        if by is not None:
            by.ended(wait, [result.id for result in ended])
        return ended

    def _look_at_all(self, hears: bool) -> list[JobResult[R]]:
        began = time.monotonic()
        alive: set[int] = set()
        with database.cursor() as cursor:
            ids = list(self._pending)
            for start in range(0, len(ids), IDS_MAX):
                alive |= live(cursor, ids[start : start + IDS_MAX])
        ended = self._look_at(self._pending.keys() - alive)
        if self._pending:
            self._refuse_in_vain()
        self._looks.looked(hears=hears, took=time.monotonic() - began)
        return ended

    def _look_at(self, some: Collection[int]) -> list[JobResult[R]]:
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

    def _refuse_in_vain(self) -> None:
        first = next(iter(self._pending.values()))
        first._refuse_in_vain(is_endless=self._is_endless)

    def _refuse_rest(self) -> None:
        if self._pending:
            ids: list[Any] = list(self._pending)[:IDS_NAMED]
            more = ", …" if len(self._pending) > IDS_NAMED else ""
            raise ResultTimeout(
                f"{len(self._pending)} of {self._count} jobs have not ended within the "
                f"timeout: {', '.join(map(str, ids))}{more}."
            )
