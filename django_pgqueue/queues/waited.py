"""
Waited: telling processes that wait for jobs of their end. A hint, never data.

Who waits announces the ids to the workers, on the channel of wakes. A worker that has
settled one of them says so on a channel of its own kind, which no worker hears. Of jobs
that nobody waits for, nothing is sent. Nor of output that nobody reads as it comes: to
wait for that is said, and told, apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Any

from psycopg.pq import TransactionStatus

from django_pgqueue.postgres.cursor import Cursor, value

# What is notified instead of a queue's name, with the ids after it.
HINT = "!wait:"

# Likewise, before the ids of jobs for whose output somebody waits; and, told, of those
# that have some.
OUTPUT_HINT = "!output:"

# The server takes less than 8,000.
PAYLOAD_BYTES_MAX = 7_900

# Of jobs that somebody cancels at once; who waits for others finds them by its look.
CANCELLED_IDS_MAX = 5_000

# The schema's own, as is that of wakes, whose name may be as long as a name can be.
ENDED_CHANNEL = "SELECT 'pgqueue_ended_' || md5(pgqueue_channel())"

# Locks: as postgres/wake.py's NOTIFY.
ANNOUNCE = """
SELECT pg_notify(pgqueue_channel(), told)
  FROM unnest(%(payloads)s::text[]) AS told
"""

# Locks: likewise.
TELL = """
SELECT pg_notify('pgqueue_ended_' || md5(pgqueue_channel()), told)
  FROM unnest(%(payloads)s::text[]) AS told
"""


def channel(cursor: Cursor) -> str:
    """Return the channel on which the ends of jobs are told."""
    found: str = value(cursor, ENDED_CHANNEL)
    return found


def announce(cursor: Cursor, ids: Iterable[int], *, hint: str = HINT) -> None:
    """
    Tell workers which jobs somebody waits for.

    Args:
        cursor: In autocommit.
        ids: Of the jobs.
        hint: HINT: for their ends; OUTPUT_HINT: for their output.
    """
    cursor.execute(ANNOUNCE, {"payloads": list(_payloads(ids, hint))})


def tell(cursor: Cursor, ids: Iterable[int], *, hint: str = "") -> None:
    """Tell who waits for them which jobs have ended, or by OUTPUT_HINT have output."""
    cursor.execute(TELL, {"payloads": list(_payloads(ids, hint))})


def tell_after_commit(connection: Any, ids: Collection[int]) -> None:
    """
    Tell who waits for them of jobs that have ended, once the transaction has committed.

    Args:
        connection: Django's, in a transaction.
        ids: Of jobs that an operator has ended. Of many, the first 5,000 are told.
    """
    if ids:
        connection.on_commit(
            partial(_tell, connection, list(ids)[:CANCELLED_IDS_MAX]), robust=True
        )


def ids_of(payload: str, *, hint: str = HINT) -> set[int]:
    """Return the ids in what was heard; none, if a stranger has sent anything else."""
    try:
        return {int(number) for number in payload.removeprefix(hint).split(",")}
    except ValueError:
        return set()


def _tell(connection: Any, ids: list[int]) -> None:
    raw = connection.connection
    # After a raw BEGIN it would hold up the caller's commit: the look finds them.
    if raw is not None and raw.info.transaction_status == TransactionStatus.IDLE:
        with connection.cursor() as cursor:
            tell(cursor, ids)


def _payloads(ids: Iterable[int], start: str = "") -> Iterator[str]:
    """Yield texts that the server takes, with all the ids."""
    numbers: list[str] = []
    room = PAYLOAD_BYTES_MAX - len(start)
    for number in map(str, ids):
        room -= len(number) + 1
        if room < 0:
            yield start + ",".join(numbers)
            numbers, room = [], PAYLOAD_BYTES_MAX - len(start) - len(number) - 1
        numbers.append(number)
    if numbers:
        yield start + ",".join(numbers)
