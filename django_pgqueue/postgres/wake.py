"""
Wake: tell idle workers to look now. A hint, never data.

The fourth hop of a job's life, and with worker/claim/listener.py its fifth. A
transaction that has NOTIFYed takes a lock on the whole cluster at commit and holds it
across its fsync, so NOTIFY never runs inside the caller's transaction: it is a
statement of its own, right after the commit. Commits that come one by one are each
announced; of a stream there is at most one wake per queue and WAKE_INTERVAL_SECONDS of
a process, fewer while the server is busy. What this leaves out is found by the worker's
re-checks.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import sql
from psycopg.pq import TransactionStatus

from django_pgqueue.postgres.cursor import Cursor, value

logger = logging.getLogger("django_pgqueue.wake")

# Of a stream of commits, at most one NOTIFY per queue in this time from one process: a
# worker that hears one looks again 15 ms later, so a stream needs no second one.
WAKE_INTERVAL_SECONDS = 0.01

# While NOTIFYs take longer than the quickest one did, on average, the server, or this
# machine, is busy: then that time goes by this often before the next one. Sixteen
# processes that enqueue without pause on two cores would else spend a quarter of them
# on wakes.
WAKE_PAUSES_PER_DELAY = 20

# But never longer than this: a worker that heard the last one looks again 15 and 75 ms
# after it.
WAKE_INTERVAL_SECONDS_MAX = 0.06

# What is busy: the average of about so many, forgotten within a second, is beyond the
# jitter that any machine has. On two cores it was 0.2 ms for 500 jobs a second, in one
# of a hundred cases 0.4 ms; and 0.9 ms for each of those sixteen. The time of one
# counts no further than it can matter: a disk that was slow for once changes nothing.
DELAYS_AVERAGED = 16
JITTER_SECONDS = 0.0006
DELAY_SECONDS_COUNTED = WAKE_INTERVAL_SECONDS_MAX / WAKE_PAUSES_PER_DELAY

# What is a stream: each commit counts for so long. Together they have come to the
# second of these and not gone by: a thousand a second, after the first thirty.
COMMIT_SECONDS = 0.001
STREAM_SECONDS, STREAM_SECONDS_MAX = 0.03, 0.1

# Forget when queues were last woken above this many names: bounded memory.
QUEUES_REMEMBERED_MAX = 10_000

# Locks: at its commit, the cluster-wide lock that keeps notifications in commit
# order, for microseconds: a transaction that only notifies writes no WAL, so it does
# not wait for the disk.
NOTIFY = "SELECT pg_notify(pgqueue_channel(), %(queue)s)"

# The token that a worker sends to itself, to prove that it hears.
NOTIFY_CHANNEL = "SELECT pg_notify(%(channel)s, %(token)s)"

CHANNEL = "SELECT pgqueue_channel()"

# Locks: none that matter; it registers at its own commit.
LISTEN = "LISTEN {channel}"

# An alias and a queue.
Key = tuple[str, str]


class Stream:
    """The commits to one queue, as far as they count still. Times are monotonic."""

    __slots__ = ("at", "delay", "level", "quiet_until", "ready_at")

    def __init__(self, now: float) -> None:
        self.level = 0.0
        self.at = now
        # How much longer its NOTIFYs take than the quickest one, on average; and from
        # when on it is forgotten: the next one could have been sent since.
        self.delay = 0.0
        self.ready_at = now
        # No wake is sent before.
        self.quiet_until = now


class Pace:
    """
    Which commits of this process are announced. Pure.

    Threads share it without a lock: what two of them do at once makes a wake more.
    """

    def __init__(self) -> None:
        self._streams: dict[Key, Stream] = {}
        # By alias: how long a NOTIFY takes at least.
        self._quickest: dict[str, float] = {}

    def is_due(self, key: Key, now: float) -> bool:
        """Note a commit; return whether to announce it, which is then begun."""
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= QUEUES_REMEMBERED_MAX:
                self._streams.clear()
            stream = self._streams[key] = Stream(now)
        level = max(stream.level - (now - stream.at), 0.0) + COMMIT_SECONDS
        stream.level, stream.at = min(level, STREAM_SECONDS_MAX), now
        if now < stream.quiet_until:
            return False
        if level > STREAM_SECONDS:
            stream.quiet_until = now + WAKE_INTERVAL_SECONDS
        return True

    def was_sent(self, key: Key, began: float, ended: float) -> None:
        """Note that a wake that was begun has been sent."""
        alias, took = key[0], ended - began
        quickest = self._quickest[alias] = min(took, self._quickest.get(alias, took))
        stream = self._streams.get(key)
        if stream is None:
            return
        stream.delay *= max(1.0 - max(began - stream.ready_at, 0.0), 0.0)
        delay = min(took - quickest, DELAY_SECONDS_COUNTED)
        stream.delay += (delay - stream.delay) / DELAYS_AVERAGED
        stream.ready_at = began
        if stream.delay > JITTER_SECONDS:
            pause = max(WAKE_INTERVAL_SECONDS, stream.delay * WAKE_PAUSES_PER_DELAY)
            stream.quiet_until = stream.ready_at = began + pause

    def has_failed(self, key: Key) -> None:
        """Note that a wake that was begun has told nobody: the next one is due."""
        stream = self._streams.get(key)
        if stream is not None:
            stream.quiet_until = stream.at


_pace = Pace()

# By connection and queue, numbers in the order of things: the latest commit of which it
# was decided whether to announce it. What was stored earlier was committed with it.
_order = itertools.count()
_decided: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()


def wake(cursor: Cursor, queues: Iterable[str]) -> None:
    """
    Send one NOTIFY per queue, in a statement of its own.

    Args:
        cursor: A cursor in autocommit.
        queues: Names of queues that just got jobs.
    """
    for queue in queues:
        cursor.execute(NOTIFY, {"queue": queue})


def wake_after_commit(connection: Any, queue: str, *, tells_age: bool = False) -> None:
    """
    Arrange one NOTIFY for *queue* right after the caller's transaction commits.

    The hook is registered at every call and coalesced when it fires: one that was
    registered inside a savepoint goes with it when that rolls back. robust: ours
    never costs somebody else's hook. (One of theirs that is not robust and raises
    before ours does cost the wake, since Django drops the rest: the poll finds the
    job.)

    Args:
        connection: Django's connection on which the job was just stored.
        queue: Its queue.
        tells_age: Whether the seconds from here to the commit are told after it.
    """
    stored = next(_order)
    if connection.in_atomic_block:
        hook = partial(_send, connection, queue, stored)
        if tells_age:
            hook = partial(hook, since=time.monotonic())
        connection.on_commit(hook, robust=True)
    elif connection.get_autocommit():
        # The job is committed. As a hook it would run at once, too.
        _send(connection, queue, stored)
    # Else the caller commits by hand, which runs no hooks: the poll finds the job.


def channel(cursor: Cursor) -> str:
    """Return the channel of this schema."""
    found: str = value(cursor, CHANNEL)
    return found


def listen(cursor: Cursor, channels: Iterable[str]) -> None:
    """Listen on *channels* from now on; the cursor must be in autocommit."""
    for name in channels:
        cursor.execute(sql.SQL(LISTEN).format(channel=sql.Identifier(name)))


def prove(cursor: Cursor, *, channel: str, token: str) -> None:
    """Send *token* to *channel*; whoever listens there should hear it at once."""
    cursor.execute(NOTIFY_CHANNEL, {"channel": channel, "token": token})


def _send(
    connection: Any,
    queue: str,
    stored: int,
    clock: Callable[[], float] = time.monotonic,
    *,
    since: float | None = None,
) -> None:
    """Announce what was stored as number *stored* on *connection*, if it is due."""
    raw = connection.connection
    # A raw BEGIN leaves the hook inside a transaction: then the poll finds the job.
    if raw is None or raw.info.transaction_status != TransactionStatus.IDLE:
        return
    decided = _decided.setdefault(raw, {})
    if decided.get(queue, -1) > stored:
        return
    if len(decided) >= QUEUES_REMEMBERED_MAX:
        decided.clear()
    decided[queue] = next(_order)
    key, began = (connection.alias, queue), clock()
    if not _pace.is_due(key, began):
        return
    age = 0 if since is None else int(began - since)
    try:
        with connection.cursor() as cursor:
            wake(cursor, [f"{queue}{age}" if age else queue])
        _pace.was_sent(key, began, clock())
    except Exception as error:
        # The job is committed and will be found by the poll; the caller's request
        # must not fail for a hint.
        _pace.has_failed(key)
        logger.warning("wake failed queue=%s error=%r", queue, error)
