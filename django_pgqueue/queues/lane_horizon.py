"""
Horizon of lanes: up to which id, and which time, what was stored is committed.

Who keeps a floor below which nothing waits must know that nobody will commit a job
there. Ids are drawn, and due times taken, before their transaction commits; but only by
one that has a lock on the table of jobs until then. So: note the last id and the time,
then who has a lock. When all of these have ended, what was noted is the horizon.

A transaction that reads, however long, has no such lock and holds nothing up.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_pgqueue.postgres.cursor import Cursor, one_row

# Locks: none.
STORED = """
SELECT coalesce(pg_sequence_last_value(
           pg_get_serial_sequence('pgqueue_job', 'id')::regclass), 0),
       clock_timestamp()
"""

# Locks: none that stays; each part of the lock table for a moment. Prepared
# transactions are among them.
WRITERS = """
SELECT coalesce(array_agg(DISTINCT l.virtualtransaction), '{}')
  FROM pg_locks l
 WHERE l.locktype = 'relation' AND l.relation = 'pgqueue_job'::regclass
   AND l.database = (SELECT d.oid FROM pg_database d
                      WHERE d.datname = current_database())
   AND l.mode = 'RowExclusiveLock' AND l.granted
"""


class Stored(NamedTuple):
    """The last id that was drawn, and the database's time."""

    id: int
    at: datetime


class Horizon:
    """
    What one process knows of it.

    Attributes:
        upto: None: nothing yet.
    """

    def __init__(self) -> None:
        self.upto: Stored | None = None
        self._next: Stored | None = None
        self._writers: set[str] = set()

    def look(self, cursor: Cursor) -> None:
        """Move it as far as it goes; *cursor* is in autocommit."""
        cursor.execute(STORED)
        stored = Stored(*one_row(cursor))
        # After it: who draws an id from here on has a larger one.
        cursor.execute(WRITERS)
        (writers,) = one_row(cursor)
        self._writers.intersection_update(writers)
        if not self._writers:
            self.upto = self._next or self.upto
            self._next, self._writers = stored, set(writers)
            if not writers:
                self.upto = stored
