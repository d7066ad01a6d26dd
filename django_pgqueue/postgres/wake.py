"""
Wake: tell idle workers to look now. A hint, never data.

The fourth hop of a job's life, and with worker/listener.py its fifth. A transaction
that has NOTIFYed takes a lock on the whole cluster at commit and holds it across its
fsync, so NOTIFY never runs inside the caller's transaction: it is a statement of its
own, right after the commit, and at most one per queue and WAKE_INTERVAL_SECONDS of a
process; fewer while the server is busy. What this leaves out is found by the worker's
re-checks and its poll.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from psycopg import sql
from psycopg.pq import TransactionStatus

logger = logging.getLogger("django_pgqueue.wake")

# At most one NOTIFY per queue in this time from one process: a worker that hears one
# looks again 15 ms after it ran dry, so a burst needs no second one.
WAKE_INTERVAL_SECONDS = 0.01

# While a NOTIFY takes longer than the quickest one did, the server, or this machine, is
# busy: then that time goes by this often before the next one. Sixteen processes that
# enqueue without pause on two cores would else spend a quarter of them on wakes.
WAKE_PAUSES_PER_DELAY = 20

# But never longer than this: a worker that heard the last one looks again 15 and 75 ms
# after it ran dry.
WAKE_INTERVAL_SECONDS_MAX = 0.06

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

# By alias and queue: until when nothing is sent. By alias: how long a NOTIFY takes.
_quiet_until: dict[tuple[str, str], float] = {}
_quickest_seconds: dict[str, float] = {}


def wake(cursor: Any, queues: Iterable[str]) -> None:
    """
    Send one NOTIFY per queue, in a statement of its own.

    Args:
        cursor: A cursor in autocommit.
        queues: Names of queues that just got jobs.
    """
    for queue in queues:
        cursor.execute(NOTIFY, {"queue": queue})


def wake_after_commit(connection: Any, queue: str) -> None:
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
    """
    if connection.in_atomic_block:
        hook = partial(_send, connection, queue)
        connection.on_commit(hook, robust=True)
    elif connection.get_autocommit():
        # The job is committed. As a hook it would run at once, too.
        _send(connection, queue)
    # Else the caller commits by hand, which runs no hooks: the poll finds the job.


def channel(cursor: Any) -> str:
    """Return the channel of this schema."""
    cursor.execute(CHANNEL)
    name: str = cursor.fetchone()[0]
    return name


def listen(cursor: Any, channels: Iterable[str]) -> None:
    """Listen on *channels* from now on; the cursor must be in autocommit."""
    for name in channels:
        cursor.execute(sql.SQL(LISTEN).format(channel=sql.Identifier(name)))


def prove(cursor: Any, *, channel: str, token: str) -> None:
    """Send *token* to *channel*; whoever listens there should hear it at once."""
    cursor.execute(NOTIFY_CHANNEL, {"channel": channel, "token": token})


def _send(
    connection: Any, queue: str, clock: Callable[[], float] = time.monotonic
) -> None:
    key = (connection.alias, queue)
    now = clock()
    if now < _quiet_until.get(key, now):
        return
    raw = connection.connection
    # A raw BEGIN leaves the hook inside a transaction: then the poll finds the job.
    if raw is None or raw.info.transaction_status != TransactionStatus.IDLE:
        return
    if len(_quiet_until) >= QUEUES_REMEMBERED_MAX:
        _quiet_until.clear()
    _quiet_until[key] = now + WAKE_INTERVAL_SECONDS
    try:
        with connection.cursor() as cursor:
            wake(cursor, [queue])
        _quiet_until[key] = now + _interval(connection.alias, clock() - now)
    except Exception as error:
        # The job is committed and will be found by the poll; the caller's request
        # must not fail for a hint.
        logger.warning("wake failed queue=%s error=%r", queue, error)


def _interval(alias: str, took: float) -> float:
    """Return the seconds between two wakes, of which the first one took *took*."""
    quickest = _quickest_seconds[alias] = min(took, _quickest_seconds.get(alias, took))
    pause = (took - quickest) * WAKE_PAUSES_PER_DELAY
    return min(max(WAKE_INTERVAL_SECONDS, pause), WAKE_INTERVAL_SECONDS_MAX)
