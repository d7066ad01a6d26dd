"""
Pull: what a group without a task reads, by the functions that every language calls.

sql/read.sql leases a partition and reads it; sql/commit_position.sql moves the
position. A receipt goes from the one to the other.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.log.positions import HELD, Claimed
from django_pgqueue.postgres.cursor import Cursor, has_row, value

# Messages of one call.
MESSAGES_DEFAULT, MESSAGES_MAX = 100, 10_000

# Locks: those of sql/read.sql. JSON comes as text, as in log/read.py.
READ = """
SELECT id, name, payload::text, key, headers::text, published_at, partition, receipt
  FROM pgqueue_read(%(group)s, %(limit)s)
"""

# Locks: those of sql/commit_position.sql.
COMMIT = "SELECT pgqueue_commit_position(%(receipt)s, %(id)s)"

# Locks: a row lock on the position, until the caller's transaction ends.
EXTEND = f"""
UPDATE pgqueue_position AS p
   SET leased_until = statement_timestamp() + %(lease)s::interval
 WHERE {HELD}
RETURNING p.id
"""

# Locks: none.
FAILURES = f"""
SELECT p.failures, statement_timestamp() FROM pgqueue_position p WHERE {HELD}
"""


class Pulled(NamedTuple):
    """What was read of a partition, and by what it is ours."""

    # As log/read.py takes them; at least one.
    rows: list[tuple[Any, ...]]
    partition: int
    receipt: str

    @property
    def last(self) -> int:
        """The id that ends it."""
        return int(self.rows[-1][0])


def pull(cursor: Cursor, group: str, limit: int) -> Pulled | None:
    """
    Lease a partition that has something to read, and read it; None: there is none.

    Args:
        cursor: On the primary, in READ COMMITTED.
        group: Its topic and its name, as "clicks/stats".
        limit: The most messages, 1 to MESSAGES_MAX.
    """
    cursor.execute(READ, {"group": group, "limit": limit})
    rows = cursor.fetchall()
    if not rows:
        return None
    partition, receipt = rows[0][6:]
    return Pulled([row[:6] for row in rows], partition, receipt)


def commit(cursor: Cursor, receipt: str, up_to: int) -> bool:
    """Move the position up to an id of the batch; False: it is not ours any more."""
    return bool(value(cursor, COMMIT, receipt=receipt, id=up_to))


def extend(cursor: Cursor, claimed: Claimed, lease: timedelta) -> bool:
    """Let a lease last for *lease* from now on; False: it is not ours any more."""
    return has_row(cursor, EXTEND, **_ours(claimed), lease=lease)


def failures(cursor: Cursor, claimed: Claimed) -> tuple[int, datetime] | None:
    """Return the failures of what comes next, and the time; None: it is not ours."""
    cursor.execute(FAILURES, _ours(claimed))
    row = cursor.fetchone()
    return None if row is None else (int(row[0]), row[1])


def claimed_by(pulled: Pulled) -> Claimed:
    """Return what a receipt says, as the statements of log/positions.py take it."""
    place, fence, _last, reader = pulled.receipt.split(" ")
    first = pulled.rows[0]
    return Claimed(
        id=int(place),
        partition=pulled.partition,
        position=first[0] - 1,
        fence=int(fence),
        worker=reader,
        failures=0,
        single_to=None,
        lapsed_by=None,
        claimed_at=first[5],
    )


def _ours(claimed: Claimed) -> dict[str, Any]:
    return {"id": claimed.id, "fence": claimed.fence, "worker": claimed.worker}
