"""
Depth: what a call meets whose queue may hold so many jobs and no more.

Each process knows how many jobs such a queue holds: what was counted last, and what it
has stored itself since. The limit is soft: processes that enqueue at once know nothing
of each other until the next count.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from django.db import OperationalError

from django_pgqueue import signals
from django_pgqueue.conf import DepthLimit, Settings
from django_pgqueue.exceptions import QueueFull
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limited import limited
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.queues import depth as depths
from django_pgqueue.tasks.database import has_transaction, in_thread

T = TypeVar("T")

# A process reads what the leader has counted this often.
READ_SECONDS = 1.0

# Jobs that this process stores are added up over so long.
STEP_SECONDS = 0.05

# Who waits for room looks again after a random time up to this one: the first of many
# are to fill the queue up, and not all of them at once.
WAIT_SECONDS = 0.5

CANCELED = "57014"


class Gauge:
    """How many jobs one queue holds, as this process knows it; any thread asks."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        # What was counted, and when; None: nothing yet.
        self._counted: int | None = None
        self._counted_at = 0.0
        # What this process has stored since, by moment, and all of that together.
        self._stored: deque[tuple[float, int]] = deque()
        self._stored_jobs = 0
        self._read_at = self._count_at = 0.0

    def add(self, jobs: int) -> None:
        """Note that this process stores so many jobs."""
        now = time.monotonic()
        with self._lock:
            self._stored_jobs += jobs
            if self._stored and now - self._stored[-1][0] < STEP_SECONDS:
                moment, before = self._stored.pop()
                self._stored.append((moment, before + jobs))
            else:
                self._stored.append((now, jobs))

    def depth(self, connection: Any, limit: DepthLimit, jobs: int) -> int | None:
        """
        Return how many jobs the queue holds; None: that could not be counted.

        Args:
            connection: Django's, to the database of the jobs.
            limit: Of the queue.
            jobs: How many are to come. If these do not fit because of what this process
                has stored, it is counted: workers have taken jobs meanwhile, too.
        """
        if self._may("_read_at", READ_SECONDS):
            with connection.cursor() as cursor:
                noted = depths.read(cursor, [self._queue]).get(self._queue)
            if noted is not None:
                self._learn(noted.jobs, time.monotonic() - noted.age_seconds)
            elif self._may("_count_at"):
                self._count(connection, limit)
        now = self._known()
        if (
            now is not None
            and now + jobs > limit.depth_max
            and self._stored_jobs
            and self._may("_count_at")
        ):
            self._count(connection, limit)
            now = self._known()
        return now

    def _may(self, at: str, pause: float = depths.COUNT_SECONDS_MAX) -> bool:
        """Whether it is time to look again; then others wait until after the pause."""
        now = time.monotonic()
        with self._lock:
            if now < getattr(self, at):
                return False
            setattr(self, at, now + pause)
            return True

    def _count(self, connection: Any, limit: DepthLimit) -> None:
        began = time.monotonic()
        try:
            with (
                limited(
                    connection.alias,
                    seconds=depths.COUNT_SECONDS_MAX,
                    plans=Plans.IN_ORDER,
                ),
                connection.cursor() as cursor,
            ):
                counted = depths.count(cursor, {self._queue: limit.depth_max})
            self._learn(counted[self._queue], began)
        except OperationalError as error:
            # It takes too long to count: nobody is held up by that.
            if getattr(error.__cause__, "sqlstate", None) != CANCELED:
                raise
        now = time.monotonic()
        self._count_at = now + (now - began) / depths.COUNT_SHARE

    def _learn(self, jobs: int, moment: float) -> None:
        """Note what was counted at *moment*; what was stored before is in it."""
        with self._lock:
            if self._counted is not None and moment < self._counted_at:
                return
            self._counted, self._counted_at = jobs, moment
            while self._stored and self._stored[0][0] <= moment:
                self._stored_jobs -= self._stored.popleft()[1]

    def _known(self) -> int | None:
        with self._lock:
            too_old = depths.FRESH_SECONDS + depths.PAUSE_SECONDS_MAX
            if self._counted is None or time.monotonic() - self._counted_at > too_old:
                return None
            return self._counted + self._stored_jobs


# By the alias of the database, and the queue.
gauges: dict[tuple[str, str], Gauge] = {}


@dataclass(slots=True)
class Patience:
    """For how long one call waits for room, and whether that was told."""

    # Otherwise the wait is that of a coroutine, and not of the thread.
    sleeps: bool
    is_told: bool = False
    began: float | None = None

    def waited_seconds(self) -> float:
        """Return for how long it has waited; the first time that is asked it begins."""
        now = time.monotonic()
        if self.began is None:
            self.began = now
        return now - self.began


# That of a call from async code.
_patience: ContextVar[Patience | None] = ContextVar("pgqueue_patience", default=None)


class Waits(Exception):
    """A call from async code is to be made again after a while."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Ways(NamedTuple):
    """What whoever meets a full queue is told to do."""

    # While it is full; and what is called after a commit.
    out: str
    after_commit: str


def admit(
    task: Any,
    connection: Any,
    queue: str,
    limit: DepthLimit,
    jobs: int,
    ways: Ways | None = None,
) -> None:
    """
    Return when so many jobs may be stored, by the limit of their queue.

    Args:
        task: Whose jobs they are, or the pull queue: something with a name.
        connection: Django's, to the database of the jobs.
        queue: Where they go.
        limit: Of the queue.
        jobs: How many; where that is not known, one.
        ways: What to do, if not what holds for a task.

    Raises:
        QueueFull: They do not fit; nothing is stored.
    """
    if ways is None:
        name = task.name.rpartition(".")[2]
        ways = Ways(
            "Try again later, or run more workers.", f"{name}.on_commit().delay(…)"
        )
    gauge = _gauge(connection, queue)
    patience = _patience.get() or Patience(sleeps=True)
    while True:
        depth = gauge.depth(connection, limit, jobs)
        if depth is None or depth + jobs <= limit.depth_max:
            break
        if not patience.is_told:
            patience.is_told = True
            if signals.queue_full.receivers:
                signals.queue_full.send(
                    sender=task,
                    on_full=limit.on_full,
                    **news(queue, depth, limit, jobs),
                )
        if limit.on_full == "signal":
            break
        _wait(task, connection, queue, depth, limit, jobs, patience, ways)
    gauge.add(jobs)


def stored(connection: Any, queue: str, jobs: int) -> None:
    """Note that a statement has stored *jobs* more than admit() was told of."""
    _gauge(connection, queue).add(jobs)


def full(cursor: Cursor, queue: str, settings: Settings) -> dict[str, Any] | None:
    """Return what is told of a queue into which one job goes all the same, if full."""
    limit = settings.depth_limit(queue)
    noted = None if limit is None else depths.read(cursor, [queue]).get(queue)
    if limit is None or noted is None or noted.jobs < limit.depth_max:
        return None
    return news(queue, noted.jobs, limit, 1)


def news(queue: str, depth: int, limit: DepthLimit, jobs: int) -> dict[str, Any]:
    """Return what an error and a signal say of a full queue."""
    return {
        "queue": queue,
        "depth": depth,
        "depth_max": limit.depth_max,
        "jobs": jobs,
    }


async def patiently(function: Callable[..., T], *args: Any) -> T:
    """
    Run *function* as in_thread(), until there is room.

    Its thread is that of all database code, so it does not wait in there.
    """
    token = _patience.set(Patience(sleeps=False))
    try:
        while True:
            try:
                return await in_thread(function, *args)
            except Waits as waits:
                await asyncio.sleep(waits.seconds)
    finally:
        _patience.reset(token)


def _gauge(connection: Any, queue: str) -> Gauge:
    key = connection.alias, queue
    return gauges.get(key) or gauges.setdefault(key, Gauge(queue))


def _wait(
    task: Any,
    connection: Any,
    queue: str,
    depth: int,
    limit: DepthLimit,
    jobs: int,
    patience: Patience,
    ways: Ways,
) -> None:
    """Wait before another look, or raise QueueFull."""
    told = {"task": task.name, **news(queue, depth, limit, jobs)}
    if limit.on_full != "block" or jobs > limit.depth_max:
        raise QueueFull(**told, way_out=ways.out)
    if has_transaction(connection):
        # It would keep its snapshot and its locks, and VACUUM from all that ends.
        raise QueueFull(
            **told,
            way_out=f"Nobody waits with a transaction open, which would hold VACUUM "
            f"back: enqueue outside of it, or after its commit with "
            f"{ways.after_commit}.",
        )
    waited = patience.waited_seconds()
    if waited >= limit.block_seconds:
        raise QueueFull(**told, waited_seconds=waited, way_out=ways.out)
    pause = min(random.uniform(0, WAIT_SECONDS), limit.block_seconds - waited)
    if not patience.sleeps:
        raise Waits(pause)
    time.sleep(pause)
