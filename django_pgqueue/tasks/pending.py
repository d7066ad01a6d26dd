"""Pending: what a caller waits for, given one by one as it ends."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Generator, Iterable, Mapping
from typing import Any, Generic, TypeVar

from django_pgqueue.exceptions import ResultTimeout
from django_pgqueue.options.durations import Duration
from django_pgqueue.tasks import database
from django_pgqueue.tasks.waiting import Ear, Looks, Wait, Woken, ear, waiting

T = TypeVar("T")

# That an error names.
IDS_NAMED = 5


class Pending(ABC, Generic[T]):
    """
    Jobs that have not ended, as far as is known.

    Args:
        pending: What stands for each, by the id of its job, or what is notified.
        timeout: For all of them, a duration from this call on; None: without end.

    Raises:
        ValueError: The timeout is no duration.
    """

    def __init__(self, pending: Mapping[Any, Any], timeout: Duration | None) -> None:
        self._looks = Looks(timeout)
        self._is_endless = timeout is None
        self._pending = dict(pending)
        self._count = len(self._pending)

    @abstractmethod
    def _find_all(self) -> list[T]:
        """Return those of all that have ended, and forget them."""

    @abstractmethod
    def _find(self, some: Collection[int]) -> list[T]:
        """Return those of *some*, told to have ended, that have; forget them."""

    @abstractmethod
    def _ids(self, ended: Iterable[T]) -> list[int]:
        """Return the ids of the jobs of these."""

    @abstractmethod
    def _refuse_in_vain(self) -> None:
        """Raise WrongState where a wait for the rest would be in vain."""

    def iterate(self) -> Generator[T, None, None]:
        """Give them as they end, and raise for those that do not."""
        yield from self._look_at_all(hears=False)
        if not self._is_done():
            woken = threading.Event()
            by = ear()
            with waiting(by, self._pending, woken.set) as wait:
                while not self._is_done():
                    woken.wait(self._rest_seconds())
                    woken.clear()
                    yield from self._look(by, wait)
        self._refuse_rest()

    async def iterate_async(self) -> AsyncGenerator[T, None]:
        """Give them likewise, in async code."""
        for result in await database.in_thread(self._look_at_all, False):
            yield result
        if not self._is_done():
            woken = Woken()
            by = await database.in_thread(ear)
            with waiting(by, self._pending, woken.set) as wait:
                while not self._is_done():
                    await woken.wait(self._rest_seconds())
                    for result in await database.in_thread(self._look, by, wait):
                        yield result
        self._refuse_rest()

    def _rest_seconds(self) -> float:
        """Return how long to rest until the next look, if nothing is told."""
        return self._looks.seconds

    def _is_done(self) -> bool:
        return not self._pending or self._looks.is_over

    def _look(self, by: Ear | None, wait: Wait) -> list[T]:
        """Return those that have ended: of all, if it is time, or of those told."""
        told = wait.take()
        if told is None or self._looks.is_due:
            ended = self._look_at_all(wait.hears)
        else:
            ended = self._find(self._pending.keys() & told)
        if by is not None:
            by.ended(wait, self._ids(ended))
        return ended

    def _look_at_all(self, hears: bool) -> list[T]:
        began = time.monotonic()
        ended = self._find_all()
        if self._pending:
            self._refuse_in_vain()
        self._looks.looked(hears=hears, took=time.monotonic() - began)
        return ended

    def _refuse_rest(self) -> None:
        if self._pending:
            ids: list[Any] = list(self._pending)[:IDS_NAMED]
            more = ", …" if len(self._pending) > IDS_NAMED else ""
            raise ResultTimeout(
                f"{len(self._pending)} of {self._count} jobs have not ended within the "
                f"timeout: {', '.join(map(str, ids))}{more}."
            )
