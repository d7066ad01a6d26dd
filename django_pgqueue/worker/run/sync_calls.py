"""
Sync calls: the threads on which coroutines run sync code, the ORM's above all.

Django runs every query of async code through sync_to_async(thread_sensitive=True).
Each of these threads keeps one connection per database, so their number bounds the
connections of any number of coroutines. A job stays on the thread that its first call
got, since a server-side cursor lives there between two calls.

Jobs share a thread, and each call runs in one piece. So nothing that a call leaves in
the connection may reach the next one, which may be another job's. A transaction that is
still open when a call returns is rolled back, and the call raises. A session that it
has changed (SET, an advisory lock) is replaced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import Context
from typing import Any, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections
from django.db.transaction import TransactionManagementError
from psycopg.pq import TransactionStatus

from django_pgqueue.postgres import session
from django_pgqueue.worker.run.isolation import clean_connections

logger = logging.getLogger("django_pgqueue.worker")

T = TypeVar("T")

OPEN = (
    TransactionStatus.ACTIVE,
    TransactionStatus.INTRANS,
    TransactionStatus.INERROR,
)

# Each statement is told of once, and so many of them.
LOGGED_MAX = 100
_logged: set[str] = set()


class SyncThread:
    """One thread, and how many jobs have calls on it."""

    def __init__(self, number: int) -> None:
        self.executor = ThreadPoolExecutor(1, f"pgqueue-sync-{number}")
        self.jobs = 0


class SyncThreads:
    """The threads of one event loop. Used from the loop alone."""

    def __init__(self, count: int) -> None:
        self._threads = [SyncThread(number) for number in range(count)]

    def take(self) -> SyncThread:
        """Return the thread with the fewest jobs, with one more."""
        thread = min(self._threads, key=lambda thread: thread.jobs)
        thread.jobs += 1
        if thread.jobs == 1:
            # Nobody has looked after its connections since the last job.
            thread.executor.submit(clean_connections)
        return thread

    def give_back(self, thread: SyncThread) -> None:
        """Note that a job is over; a thread without any tidies its connections up."""
        thread.jobs -= 1
        if not thread.jobs:
            # Not awaited: whatever comes after it runs after it.
            thread.executor.submit(clean_connections)

    def close(self) -> None:
        """End the threads and their connections, once they are done."""
        for thread in self._threads:
            thread.executor.submit(connections.close_all)
            thread.executor.shutdown()


class SyncCalls:
    """The sync calls of one job. Used from the loop alone."""

    def __init__(self, threads: SyncThreads) -> None:
        self._threads = threads
        self._thread: SyncThread | None = None
        self._is_over = False
        self._running: set[Future[Any]] = set()

    def submit(
        self, function: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> Future[T]:
        """Run a call on the job's thread; raise RuntimeError when the job is over."""
        if self._is_over:
            raise RuntimeError(
                "The job is over, so its sync_to_async() calls have no thread: await "
                "everything that a task starts."
            )
        if self._thread is None:
            self._thread = self._threads.take()
        future = self._thread.executor.submit(_in_one_piece, function, args, kwargs)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    async def finish(self) -> None:
        """Wait for calls that a cancelled task no longer waits for; no more follow."""
        self._is_over = True
        for future in list(self._running):
            await asyncio.wait([asyncio.wrap_future(future)])
        if self._thread is not None:
            self._threads.give_back(self._thread)
            self._thread = None


def closed() -> SyncCalls:
    """Return the sync calls of a job that made none and is over."""
    calls = SyncCalls(SyncThreads(0))
    calls._is_over = True
    return calls


class ByCaller(Executor):
    """
    What asgiref submits to: hands a call to the sync calls of the job that awaits it.

    One for all jobs. Most of them make no sync call, and nothing is made for a job
    before its first one.
    """

    def __init__(self, whose: Callable[[], SyncCalls]) -> None:
        """Make it; *whose* returns the sync calls of the job whose code is running."""
        self._whose = whose
        # Kept here, since asgiref keeps it by a weak reference.
        self._context = ThreadSensitiveContext()

    def context(self) -> Context:
        """Return a context in which sync_to_async() uses this; copy it for each job."""
        SyncToAsync.context_to_thread_executor[self._context] = self
        made = Context()
        made.run(SyncToAsync.thread_sensitive_context.set, self._context)
        return made

    def submit(
        self, function: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> Future[T]:
        """Run a call on the thread of the job that awaits it."""
        return self._whose().submit(function, *args, **kwargs)


def _in_one_piece(
    function: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> T:
    """Call *function*; a transaction that it leaves open ends with it."""
    try:
        value = function(*args, **kwargs)
    except BaseException:
        _tidy_up()
        raise
    left_open = _tidy_up()
    if left_open:
        raise TransactionManagementError(
            f"A sync call of an async task left a transaction open on "
            f"{', '.join(left_open)}; it was rolled back, since the next call on this "
            f"connection may be another job's. Put the whole transaction into one "
            f"function, and call that with sync_to_async()."
        )
    return value


def _tidy_up() -> list[str]:
    """Roll back what is open in this thread; return the aliases it was open on."""
    left_open = []
    is_changed = False
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        if _is_in_transaction(connection):
            left_open.append(connection.alias)
        elif _has_changed(connection):
            is_changed = True
        elif connection.errors_occurred:
            # Others have calls on it, too, so it may be long until it is cleaned.
            if connection.is_usable():
                connection.errors_occurred = False
            else:
                connection.close()
    if left_open or is_changed:
        clean_connections()
    return left_open


def _has_changed(connection: Any) -> bool:
    """Whether the session keeps what a call did to it; see postgres/session.py."""
    watched: session.Watch | None = getattr(connection.connection, session.MARK, None)
    if watched is None or watched.change is None:
        return False
    if watched.change not in _logged and len(_logged) < LOGGED_MAX:
        _logged.add(watched.change)
        logger.warning(
            "session    a sync call of an async task may have changed the session of "
            "its connection (%s): replaced, since the next call may be another job's. "
            "Use SET LOCAL or a transaction's lock, in one call",
            watched.change,
        )
    return True


def _is_in_transaction(connection: Any) -> bool:
    if connection.in_atomic_block:
        return True
    if connection.autocommit is not connection.settings_dict["AUTOCOMMIT"]:
        return True
    info = getattr(connection.connection, "info", None)
    return info is not None and info.transaction_status in OPEN
