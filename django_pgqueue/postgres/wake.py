"""
Wake: tell idle workers to look now. A hint, never data.

The fourth hop of a job's life, and with worker/listener.py its fifth. A transaction
that has NOTIFYed takes a lock on the whole cluster at commit and holds it across its
fsync, so NOTIFY never runs inside the caller's transaction: it is a statement of its
own, right after the commit, and at most one per queue and WAKE_INTERVAL_SECONDS of a
process. What this leaves out is found by the worker's re-checks and its poll.
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

_last_sent: dict[tuple[str, str], float] = {}


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
    from django.db import transaction

    if not (connection.in_atomic_block or connection.get_autocommit()):
        # The caller commits by hand, which runs no hooks: the poll finds the job.
        return
    transaction.on_commit(
        partial(_send, connection, queue), using=connection.alias, robust=True
    )


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
    if now - _last_sent.get(key, -1.0) < WAKE_INTERVAL_SECONDS:
        return
    raw = connection.connection
    # A raw BEGIN leaves the hook inside a transaction: then the poll finds the job.
    if raw is None or raw.info.transaction_status != TransactionStatus.IDLE:
        return
    if len(_last_sent) >= QUEUES_REMEMBERED_MAX:
        _last_sent.clear()
    _last_sent[key] = now
    try:
        with connection.cursor() as cursor:
            wake(cursor, [queue])
    except Exception as error:
        # The job is committed and will be found by the poll; the caller's request
        # must not fail for a hint.
        logger.warning("wake failed queue=%s error=%r", queue, error)
