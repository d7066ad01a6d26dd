"""
Waiting: how a process hears of the end of the jobs that its callers wait for.

And of messages, in pull queues and in topics, of which wakes tell: whoever waits for
these names the queue or the topic, by its hint, in place of ids. Whoever waits for the
output of jobs likewise names their ids by a hint.

    the first wait     a thread opens a connection, and LISTENs
    each wait          its ids are announced to the workers, then looked at once more
    a job has ended    its worker tells the id, and whoever waits for it looks
    ... or has output  likewise

All threads and event loops of a process share the connection. It is opened when
somebody waits, and closed when nobody has for a while; a process that was forked opens
one of its own. Where none can be had, whoever waits looks by himself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice, repeat

import psycopg

from django_pgqueue.conf import get_settings
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.postgres import wake
from django_pgqueue.postgres.connect import Link, is_pooled
from django_pgqueue.postgres.wakeup import Wakeup
from django_pgqueue.queues import waited
from django_pgqueue.queues.pull import HINT as PULL_HINT
from django_pgqueue.tasks.database import has_test_case, in_thread

# Looks --------------------------------------------------------------------------------


# Between two looks of one who is not told of ends: the first are short, since most jobs
# are; a long one costs two queries a second.
PAUSES_SECONDS = tuple(0.01 * 1.5**n for n in range(10))
PAUSE_SECONDS_MAX = 0.5

# Of one who is told. The first follow his announcement: a job may end before its worker
# has heard that, or be claimed by a process that starts just now. After that a look
# finds what nobody tells: an end by SQL, by a worker that does not listen, or a
# notification that was lost.
TOLD_PAUSES_SECONDS = (0.003, 0.007, 0.04, 0.2)
TOLD_PAUSE_SECONDS_MAX = 3.0

# A look at many jobs takes no larger part of the time than one in so many.
PAUSES_PER_LOOK = 10


class Looks:
    """
    The times of a wait's looks; the first is at once.

    Args:
        timeout: A duration; None: without end.

    Raises:
        ValueError: The timeout is no duration.
    """

    def __init__(self, timeout: Duration | None) -> None:
        self._ends_at = float("inf")
        if timeout is not None:
            left = as_timedelta(timeout, name="timeout").total_seconds()
            self._ends_at = time.monotonic() + left
        self._due_at = 0.0
        self._hears = False
        self._pauses = _pauses(hears=False)
        # Whether a look was at or after the end.
        self.is_over = False

    def looked(
        self, *, hears: bool, took: float = 0.0, due_in: float | None = None
    ) -> None:
        """
        Note a look, from which the next one follows.

        Args:
            hears: Whether the end of what is waited for would be told.
            took: Seconds.
            due_in: In how many seconds the next look is due at the latest.
        """
        if hears is not self._hears:
            self._hears, self._pauses = hears, _pauses(hears=hears)
        pause = max(next(self._pauses), took * PAUSES_PER_LOOK)
        if due_in is not None:
            pause = min(pause, due_in)
        now = time.monotonic()
        self._due_at, self.is_over = now + pause, now >= self._ends_at

    @property
    def seconds(self) -> float:
        """How long to rest until the next look, which may be the last."""
        return max(min(self._due_at, self._ends_at) - time.monotonic(), 0.0)

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next look."""
        return time.monotonic() >= min(self._due_at, self._ends_at)


def _pauses(*, hears: bool) -> Iterator[float]:
    if hears:
        return chain(TOLD_PAUSES_SECONDS, repeat(TOLD_PAUSE_SECONDS_MAX))
    return chain(PAUSES_SECONDS, repeat(PAUSE_SECONDS_MAX))


# Waiting ------------------------------------------------------------------------------


logger = logging.getLogger("django_pgqueue.wake")

# How long the connection stays after the last wait.
IDLE_SECONDS = 30.0

# Workers forget what is not announced again.
ANNOUNCE_SECONDS = 20.0

# Of one process. What is beyond is found by looking, and announced when others end.
IDS_ANNOUNCED_MAX = 20_000

# After the connection broke, or could not be opened.
RETRY_SECONDS = 1.0


# The id of a job, or OUTPUT_HINT and the id of a job; or what wakes tell of: PULL_HINT
# and a queue, or the hint of a topic.
Key = int | str


def output_key(job_id: int) -> Key:
    """Return what stands for the output of a job."""
    return f"{waited.OUTPUT_HINT}{job_id}"


def _is_output(key: str) -> bool:
    """Whether it stands for the output of a job."""
    return key.startswith(waited.OUTPUT_HINT)


def _output_ids(text: str) -> set[int]:
    """Return the jobs whose output is meant; none, of any other key."""
    if not _is_output(text):
        return set()
    return waited.ids_of(text, hint=waited.OUTPUT_HINT)


class Wait:
    """
    What one caller waits for.

    Args:
        ids: Of jobs; or what wakes tell of.
        wake: Ends his rest; any thread may call it, and it does not wait.
    """

    def __init__(self, ids: Iterable[Key], wake: Callable[[], None]) -> None:
        self.ids = dict.fromkeys(ids)
        self._wake = wake
        self._lock = threading.Lock()
        self._told: set[Key] = set()
        # Whether everything is to be looked at.
        self._is_new = False
        # Whether ends are told, but for those of the last moments.
        self.hears = False

    def take(self) -> set[Key] | None:
        """Return which jobs have been told of since; None: look at all."""
        with self._lock:
            told, self._told = self._told, set()
            is_new, self._is_new = self._is_new, False
        return None if is_new else told

    def tell(self, ids: Collection[Key]) -> None:
        """Say that *ids* have ended, or have got messages."""
        with self._lock:
            self._told.update(ids)
        self._wake()

    def set_hears(self, hears: bool) -> None:
        """Say from when on ends are told, or not any more."""
        with self._lock:
            if hears is self.hears:
                return
            self.hears, self._is_new = hears, True
        self._wake()


class Woken:
    """As asyncio.Event, of the running loop, but any thread may set it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """End the wait that is under way, or else the next one."""
        # RuntimeError: the loop is closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        """Wait for set(), or for *seconds*; the next wait lasts again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


class Ear:
    """The waits of a process, the connection by which they hear, and its thread."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._lock = threading.Lock()
        self._waits: dict[Wait, None] = {}
        self._by_id: dict[Key, dict[Wait, None]] = {}
        # Whether anybody has waited for a message.
        self._hears_wakes = False
        # Not announced yet.
        self._fresh: list[Wait] = []
        self._announce_all_at = 0.0
        self._empty_since = 0.0
        # None: there is no thread.
        self._wakeup: Wakeup | None = None
        # Whether a pooler is in between, through which nothing would be heard.
        self._is_deaf = False
        self._has_said = False

    def add(self, wait: Wait) -> None:
        """Begin to listen for *wait*; returns at once."""
        with self._lock:
            if self._is_deaf:
                return
            self._waits[wait] = None
            self._fresh.append(wait)
            for key in wait.ids:
                self._by_id.setdefault(key, {})[wait] = None
                is_message = isinstance(key, str) and not _is_output(key)
                self._hears_wakes = self._hears_wakes or is_message
            if self._wakeup is None:
                self._start()
            self._wake_up()

    def _start(self) -> None:
        wakeup = Wakeup()
        thread = threading.Thread(
            target=self._run, args=[wakeup], name="pgqueue-results", daemon=True
        )
        # RuntimeError: the process may have no more threads, or is about to end.
        with suppress(RuntimeError):
            thread.start()
            self._wakeup = wakeup

    def _wake_up(self) -> None:
        if self._wakeup is not None:
            self._wakeup.set()

    def ended(self, wait: Wait, ids: Collection[Key]) -> None:
        """Announce these no more: *wait* knows of their end."""
        with self._lock:
            self._forget(wait, ids)

    def remove(self, wait: Wait) -> None:
        """End a wait."""
        with self._lock:
            if wait not in self._waits:
                return
            self._forget(wait, list(wait.ids))
            del self._waits[wait]
            if wait in self._fresh:
                self._fresh.remove(wait)
            if self._waits:
                return
            self._empty_since = time.monotonic()
            if not _idle_seconds():
                self._wake_up()

    def _forget(self, wait: Wait, ids: Collection[Key]) -> None:
        for job_id in ids:
            wait.ids.pop(job_id, None)
            waits = self._by_id.get(job_id)
            if waits is not None:
                waits.pop(wait, None)
                if not waits:
                    del self._by_id[job_id]

    # The thread ----------------------------------------------------------------------

    def _run(self, wakeup: Wakeup) -> None:
        link = Link(self._alias, name=f"pgqueue results {os.getpid()}")
        # What arrives during a statement is read by that.
        came: list[str] = []
        listening_on: object = None
        heard_on: object = None
        while (seconds := self._seconds()) is not None:
            try:
                connection = link.connection
                if listening_on is not connection:
                    if is_pooled(connection):
                        self._give_up()
                        break
                    with link.cursor() as cursor:
                        wake.listen(cursor, [waited.channel(cursor)])
                    connection.add_notify_handler(lambda it: came.append(it.payload))
                    listening_on, self._has_said = connection, False
                if self._hears_wakes and heard_on is not connection:
                    with link.cursor() as cursor:
                        wake.listen(cursor, [wake.channel(cursor)])
                    heard_on = connection
                self._announce(link)
                self._hear(connection, came)
                wakeup.wait(seconds, connection.fileno())
                wakeup.clear()
            except Exception as error:
                listening_on = heard_on = None
                link.drop()
                if not self._lost(error):
                    break
                time.sleep(RETRY_SECONDS)
        link.drop()
        wakeup.close()

    def _seconds(self) -> float | None:
        """Return how long to wait for something to happen; None: for nothing more."""
        now = time.monotonic()
        with self._lock:
            if self._fresh:
                return 0.0
            if self._waits:
                return max(self._announce_all_at - now, 0.0)
            left = self._empty_since + _idle_seconds() - now
            if left > 0:
                return left
            # Whoever comes from here on starts another thread.
            self._wakeup = None
            return None

    def _announce(self, link: Link) -> None:
        """Tell workers of new waits, and now and then of all."""
        now = time.monotonic()
        with self._lock:
            waits, self._fresh = self._fresh, []
            ids: Iterable[Key] = (key for wait in waits for key in wait.ids)
            if now >= self._announce_all_at:
                waits, ids = list(self._waits), self._by_id
                self._announce_all_at = now + ANNOUNCE_SECONDS
            keys = list(ids)
        jobs = (key for key in keys if isinstance(key, int))
        streamed = (n for key in keys if isinstance(key, str) for n in _output_ids(key))
        for hint, each in ((waited.HINT, jobs), (waited.OUTPUT_HINT, streamed)):
            some = list(islice(each, IDS_ANNOUNCED_MAX))
            if some:
                with link.cursor() as cursor:
                    waited.announce(cursor, some, hint=hint)
        for wait in waits:
            wait.set_hears(True)

    def _hear(
        self, connection: psycopg.Connection[tuple[object, ...]], came: list[str]
    ) -> None:
        """Hand on what has arrived, without waiting, and empty *came*."""
        pgconn = connection.pgconn
        pgconn.consume_input()
        while (notice := pgconn.notifies()) is not None:
            came.append(notice.extra.decode(errors="replace"))
        ids: set[Key] = set()
        while came:
            payload = came.pop()
            # A redriven message is told of as a job is, by the queue alone.
            ids |= {payload, f"{PULL_HINT}{payload}", *waited.ids_of(payload)}
            ids |= {output_key(number) for number in _output_ids(payload)}
        told: dict[Wait, list[Key]] = {}
        with self._lock:
            for key in ids & self._by_id.keys():
                for wait in self._by_id[key]:
                    told.setdefault(wait, []).append(key)
        for wait, some in told.items():
            wait.tell(some)

    def _lost(self, error: Exception) -> bool:
        """Let all look by themselves until it is back; False: nobody waits."""
        with self._lock:
            waits = list(self._waits)
            self._announce_all_at = 0.0
            if not waits:
                self._wakeup = None
                return False
        for wait in waits:
            wait.set_hears(False)
        self._say(f"{type(error).__name__}: {error}")
        return True

    def _give_up(self) -> None:
        with self._lock:
            self._is_deaf, self._wakeup = True, None
            self._waits, self._by_id, self._fresh = {}, {}, []
        self._say(
            "it is behind a pooler; name an alias with a direct connection in "
            "PGQUEUE['LISTEN_DATABASE']"
        )

    def _say(self, why: str) -> None:
        if not self._has_said:
            self._has_said = True
            logger.debug(
                "deaf       alias=%s: who waits for results looks twice a second, "
                "since nothing can be heard: %s",
                self._alias,
                why.strip(),
            )


# By alias.
_ears: dict[str, Ear] = {}
_lock = threading.Lock()

# Those of the process that forked this one, whose connections are not ours to close.
_inherited: list[dict[str, Ear]] = []


def ear() -> Ear | None:
    """
    Return what this process hears by; None: whoever waits looks by himself.

    Where the settings say so, and in a TestCase, for whose jobs no worker can be.
    """
    from django.db import connections

    settings = get_settings()
    if not settings.listen or has_test_case(connections[settings.database]):
        return None
    alias = settings.listen_database or settings.database
    with _lock:
        if alias not in _ears:
            _ears[alias] = Ear(alias)
        return _ears[alias]


@contextmanager
def waiting(
    by: Ear | None, ids: Iterable[Key], wake: Callable[[], None]
) -> Iterator[Wait]:
    """Wait for *ids*, for as long as the block lasts."""
    wait = Wait(ids, wake)
    if by is None:
        yield wait
        return
    by.add(wait)
    try:
        yield wait
    finally:
        by.remove(wait)


def _idle_seconds() -> float:
    """Return IDLE_SECONDS; 0 in tests, whose database is dropped when they end."""
    from django.core import mail

    return 0.0 if hasattr(mail, "outbox") else IDLE_SECONDS


def _forget_parent() -> None:
    global _ears, _lock
    _inherited.append(_ears)
    _ears, _lock = {}, threading.Lock()


os.register_at_fork(after_in_child=_forget_parent)


def _never() -> float | None:
    return None


def wait_until(
    ids: Collection[Key],
    timeout: Duration | None,
    has_ended: Callable[[], bool],
    due_in: Callable[[], float | None] = _never,
) -> None:
    """
    Return once *has_ended* says so, or the time is over.

    Args:
        ids: Of the jobs whose ends are told; or what wakes tell of.
        timeout: A duration; 0: look once; None: without end.
        has_ended: Looks; what it raises ends the wait.
        due_in: In how many seconds there is something that nobody will tell of; None:
            there is nothing such.
    """
    looks = Looks(timeout)
    if has_ended():
        return
    looks.looked(hears=False)
    if looks.is_over:
        return
    woken = threading.Event()
    with waiting(ear(), ids, woken.set) as wait:
        while not looks.is_over:
            woken.wait(looks.seconds)
            woken.clear()
            if has_ended():
                return
            looks.looked(hears=wait.hears, due_in=due_in())


async def await_until(
    ids: Collection[Key],
    timeout: Duration | None,  # noqa: ASYNC109 - As wait_until().
    has_ended: Callable[[], bool],
    due_in: Callable[[], float | None] = _never,
) -> None:
    """Return once *has_ended*, which looks in Django's thread; as wait_until()."""
    looks = Looks(timeout)
    if await in_thread(has_ended):
        return
    looks.looked(hears=False)
    if looks.is_over:
        return
    woken = Woken()
    with waiting(await in_thread(ear), ids, woken.set) as wait:
        while not looks.is_over:
            await woken.wait(looks.seconds)
            if await in_thread(has_ended):
                return
            looks.looked(hears=wait.hears, due_in=await in_thread(due_in))
