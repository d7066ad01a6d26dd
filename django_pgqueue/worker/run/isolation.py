"""
Isolation: what a job must not leave behind in its process.

Threads share a process, so what a job changes here reaches the jobs beside it while it
runs; no worker can prevent that. What can be prevented is that it stays: after a job,
the process is compared with what it was at the start.

Put back, with a warning: the working directory, the locale, the recursion limit, the
umask, the garbage collector, alarm timers, an override of Django's settings.
The process is replaced: standard input, output or error was closed or replaced.
Told, and left as it is: threads that a job started.

Each job runs in a context of its own (contextvars), which ends with it: the active
language and time zone, the decimal context.

A web request gets its connections from Django's own signals; a worker has no requests.
A stale connection is closed before a job uses it. One that a job left inside a
transaction, or whose session it has changed (SET, an advisory lock, a temporary table),
is closed after it.

Not looked at: os.environ, sys.path, modules and what is patched in them, signal
handlers, memory, child processes.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import locale
import logging
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import connections, reset_queries
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from django_pgqueue.postgres import session
from django_pgqueue.topics.captured import Captured

logger = logging.getLogger("django_pgqueue.worker")

P = ParamSpec("P")
R = TypeVar("R")

# How often to look, at most, while several threads run short jobs: a look takes 10
# microseconds. With one thread, every job is followed by one.
LOOK_INTERVAL_SECONDS = 0.02

# The umask can only be read by changing it, which other threads would meet, or from a
# file, which takes longer than everything else.
UMASK_INTERVAL_SECONDS = 1.0
UMASK_MEANWHILE = 0o077
STATUS = Path("/proc/self/status")

TIMERS = (
    (signal.ITIMER_REAL, signal.SIGALRM),
    (signal.ITIMER_VIRTUAL, signal.SIGVTALRM),
    (signal.ITIMER_PROF, signal.SIGPROF),
)

STANDARD_FILES = (0, 1, 2)


# What is behind it has no name of its own.
lazy_settings: Any = settings


class Isolation:
    """What the process was at the start, and how to get back there."""

    def __init__(self, *, threads: int, on_spoiled: Callable[[], None]) -> None:
        """
        Take the process as it is now for what it should be after every job.

        Args:
            threads: How many run jobs.
            on_spoiled: Called when the process cannot be fixed.
        """
        self._interval = LOOK_INTERVAL_SECONDS if threads > 1 else 0.0
        self._on_spoiled = on_spoiled
        self._is_spoiled = False
        self._look_at = 0.0
        # The last job after which there was no look: its id and its task.
        self._owed: tuple[int, str] | None = None
        self._umask_at = 0.0
        self._lock = threading.Lock()
        self._directory = _directory()
        self._locale = locale.setlocale(locale.LC_ALL)
        self._recursion = sys.getrecursionlimit()
        self._collects = gc.isenabled()
        self._settings = lazy_settings._wrapped
        self._read_umask = _umask_of_file if threads > 1 else _umask_by_change
        self._umask = self._read_umask()
        self._timers = [n for n, _ in TIMERS if not signal.getitimer(n)[0]]
        self._files = [_file(number) for number in STANDARD_FILES]
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._threads_count = 0

    def start(self) -> None:
        """
        Let no alarm of a job end the process; call it in the main thread.

        And know the threads that are there, which are no job's.
        """
        for _, number in TIMERS:
            signal.signal(number, _ignore)
        self._know_threads()

    def look(self, job_id: int, task: str) -> None:
        """
        Put back what differs; never raises.

        With several threads, looks that follow one another too soon are left out; see
        catch_up().

        Args:
            job_id: The job that has just ended, for the log. With several threads it
                may have been another one's doing.
            task: Of that job.
        """
        # First: a look that is under way may have seen it before the job changed it.
        self._owed = (job_id, task)
        if time.monotonic() >= self._look_at:
            self.catch_up()

    def catch_up(self) -> None:
        """
        Make up for a look that was left out; never raises.

        For whoever has the time, or begins a job that may take long and would find what
        another has left for as long as that.
        """
        if self._owed is None or not self._lock.acquire(blocking=False):
            return
        job_id, task = self._owed
        try:
            self._owed = None
            now = time.monotonic()
            self._look_at = now + self._interval
            for what in self._mend(now):
                logger.warning(
                    "leftover   job=%d task=%s left behind: %s", job_id, task, what
                )
        except Exception:
            logger.exception("failed     loop=isolation job=%d", job_id)
        finally:
            self._lock.release()

    def _mend(self, now: float) -> list[str]:
        found = []
        if self._directory is not None and _directory() != self._directory:
            os.chdir(self._directory)
            found.append("another working directory; put back")
        if locale.setlocale(locale.LC_ALL) != self._locale:
            locale.setlocale(locale.LC_ALL, self._locale)
            found.append("another locale; put back")
        if sys.getrecursionlimit() != self._recursion:
            sys.setrecursionlimit(self._recursion)
            found.append("another recursion limit; put back")
        if gc.isenabled() is not self._collects:
            (gc.enable if self._collects else gc.disable)()
            found.append("the garbage collector switched; put back")
        if lazy_settings._wrapped is not self._settings:
            lazy_settings._wrapped = self._settings
            found.append("an override of Django's settings; taken back")
        for timer in self._timers:
            if signal.getitimer(timer)[0]:
                signal.setitimer(timer, 0)
                found.append("an alarm; taken back")
        if now >= self._umask_at:
            self._umask_at = now + UMASK_INTERVAL_SECONDS if self._interval else 0.0
            if self._umask is not None and self._read_umask() != self._umask:
                os.umask(self._umask)
                found.append("another umask; put back")
        return [*found, *self._look_at_files(), *self._look_at_threads()]

    def _look_at_files(self) -> list[str]:
        if self._is_spoiled:
            return []
        files = [_file(number) for number in STANDARD_FILES]
        streams = (sys.stdin, sys.stdout, sys.stderr)
        is_closed = any(stream is not None and stream.closed for stream in streams)
        if files == self._files and not is_closed:
            return []
        self._is_spoiled = True
        # Before anything else gets the number, a connection say.
        for number, before in zip(STANDARD_FILES, self._files, strict=True):
            if before is not None and _file(number) is None:
                _fill(number)
        self._on_spoiled()
        return ["standard files closed or replaced; this process is replaced"]

    def _look_at_threads(self) -> list[str]:
        if threading.active_count() <= self._threads_count:
            return []
        fresh = [t for t in threading.enumerate() if t not in self._threads]
        self._know_threads()
        return [
            f"the thread {thread.name!r}; it goes on"
            for thread in fresh
            if not thread.name.startswith("pgqueue-")
        ]

    def _know_threads(self) -> None:
        threads = threading.enumerate()
        self._threads.update(threads)
        self._threads_count = len(threads)


def in_own_context(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """
    Call *function*; what it sets in context variables ends with it.

    Of a value that can be changed, such as the decimal context, the copy is the same
    one. So the thread's own context must be empty: see new_thread().
    """
    return contextvars.copy_context().run(function, *args, **kwargs)


def new_thread(
    function: Callable[..., None], *args: Any, name: str
) -> threading.Thread:
    """Return a daemon thread whose context is empty, whatever Python's default is."""
    return threading.Thread(
        target=contextvars.Context().run, args=(function, *args), name=name, daemon=True
    )


def keep_caches() -> None:
    """
    Make this thread's cache clients now, so that all its jobs share them.

    Django keeps them in a context variable: a job that made its own would connect anew
    each time.
    """
    from django.core.cache import caches

    for alias in settings.CACHES:
        # A back end that cannot be made says so to the task that uses it.
        with contextlib.suppress(Exception):
            caches[alias]


def _ignore(number: int, frame: Any) -> None:
    logger.warning("leftover   an alarm of a job went off; ignored")


def _directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109  # After every job: no Path for it.
    except OSError:
        return None  # It was removed.


def _umask_by_change() -> int | None:
    found = os.umask(UMASK_MEANWHILE)
    os.umask(found)
    return found


def _umask_of_file() -> int | None:
    try:
        with STATUS.open(encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass  # Not Linux: not looked at.
    return None


def _file(number: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _fill(number: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:
        os.dup2(null, number)
        os.close(null)


# Connections --------------------------------------------------------------------------


class Opened(threading.local):
    """What this thread has opened, ever: connections.all() takes as long as a job."""

    def __init__(self) -> None:
        self.connections: list[Any] = []


opened = Opened()


def watch_connections() -> None:
    """Notice from now on what is done to the sessions of new connections."""
    connection_created.connect(_watch, dispatch_uid="django_pgqueue.cleanup")


def clean_connections() -> None:
    """
    Close what is stale, broken or inside a transaction, in this thread.

    Never raises: the outcome of the job that has just ended is still to be settled.
    """
    _clean_each(connections.all(initialized_only=True))


def clean_after_job() -> None:
    """
    Do the same for what was opened since watch_connections(), between two jobs.

    Most jobs of a short task open nothing, and then it costs nothing.
    """
    if opened.connections or settings.DEBUG:
        _clean_each(opened.connections)


def _clean_each(found: Iterable[Any]) -> None:
    for connection in found:
        try:
            _clean(connection)
        except Exception as error:
            logger.warning("closing    alias=%s error=%r", connection.alias, error)
            connection.connection = None
    if settings.DEBUG:
        reset_queries()


def _watch(sender: Any, connection: Any, **fields: Any) -> None:
    if not any(known is connection for known in opened.connections):
        opened.connections.append(connection)
    if connection.vendor == "postgresql" and hasattr(connection.connection, "info"):
        session.watch(connection.connection)


def _clean(connection: Any) -> None:
    if connection.connection is None:
        return
    wrappers = connection.execute_wrappers
    if any(not isinstance(wrapper, Captured) for wrapper in wrappers):
        wrappers[:] = [each for each in wrappers if isinstance(each, Captured)]
    if not connection.in_atomic_block and _is_idle(connection.connection):
        if _is_as_it_was(connection):
            _close_cursors(connection)
            connection.close_if_unusable_or_obsolete()
            return
        # Closed for good: a pool would lend it to somebody else as it is.
        connection.connection.close()
    # A task that opened a transaction by hand and forgot it: rolled back.
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.needs_rollback = False
    connection.run_on_commit = []
    connection.closed_in_transaction = False
    connection.close()


def _is_as_it_was(connection: Any) -> bool:
    """Whether a job left nothing in the session; see postgres/session.py."""
    watched = getattr(connection.connection, session.MARK, None)
    left = None if watched is None else watched.what_is_left(connection.connection)
    if left is not None:
        logger.debug("session    alias=%s replaced after: %s", connection.alias, left)
    return left is None


def _close_cursors(connection: Any) -> None:
    """Close what iterator() has left open, if it was called since the last time."""
    count = getattr(connection, "_named_cursor_idx", 0)
    watched = getattr(connection.connection, session.MARK, None)
    if watched is not None and count != watched.named_cursors:
        watched.named_cursors = count
        session.close_cursors(connection.connection)


def _is_idle(raw: object) -> bool:
    info = getattr(raw, "info", None)
    # Another engine than psycopg on another alias: Django's own check must do.
    return info is None or info.transaction_status == TransactionStatus.IDLE
