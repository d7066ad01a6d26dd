"""
Gauges: what the benchmark reads from the server, and holds open there.

Every statement here runs while something is measured, so each is cheap, and none takes
a lock that a worker could wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_pgqueue.postgres.cursor import Cursor, one_row

# Locks: none, here and below. One index probe.
IS_LIVE = "SELECT EXISTS (SELECT FROM pgqueue_job WHERE id = %s)"

LIVE = "SELECT count(*) FROM pgqueue_job WHERE id BETWEEN %s AND %s"

SUCCEEDED = """
SELECT count(*) FROM pgqueue_archived_job
 WHERE id BETWEEN %s AND %s AND state = 'succeeded'
"""

ALL_LIVE = "SELECT count(*) FROM pgqueue_job"

IS_LEASED = "SELECT EXISTS (SELECT FROM pgqueue_job WHERE leased_by IS NOT NULL)"

# The id of the job that is the %s-th to be claimed from a queue of one priority.
PLACE_IN_QUEUE = """
SELECT id FROM pgqueue_job
 WHERE queue = %s AND visible_at <= statement_timestamp()
 ORDER BY priority DESC, visible_at OFFSET %s LIMIT 1
"""

# By the server's clock.
FINISHED = """
SELECT finished_at, count(*) FROM pgqueue_archived_job WHERE finished_at >= %s
 GROUP BY finished_at ORDER BY finished_at
"""

# Of messages that nobody else publishes: where the partitions end, and how many they
# have. Through the key.
ENDS = """
SELECT topic_id, partition, max(id), count(*) FROM pgqueue_message
 WHERE id >= %s GROUP BY topic_id, partition
"""

# Whether any group has not read a partition up to its end, or there is none yet.
IS_BEHIND = """
SELECT EXISTS (
       SELECT FROM unnest(%s::int[], %s::int[], %s::bigint[]) AS e(topic, partition, id)
         LEFT JOIN pgqueue_consumer_group g ON g.topic_id = e.topic
         LEFT JOIN pgqueue_position p ON p.group_id = g.id AND p.partition = e.partition
        WHERE p.position IS NULL OR p.position < e.id)
"""

HAS_POSITIONS = "SELECT EXISTS (SELECT FROM pgqueue_position)"

NOW = "SELECT clock_timestamp()"

# Transactions of every session in this database, as far as the server has counted them;
# a session tells its own at the end of a transaction, and after 10 s at the latest.
TRANSACTIONS = """
SELECT xact_commit + xact_rollback FROM pg_stat_database
 WHERE datname = current_database()
"""

EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "

# From its first query on, nothing that anybody deletes can be vacuumed away.
HOLD = "BEGIN ISOLATION LEVEL REPEATABLE READ"
LOOK = "SELECT count(*) FROM pg_class"
LET_GO = "ROLLBACK"


def is_live(cursor: Cursor, job_id: int) -> bool:
    """Whether this job is still waiting or running."""
    return bool(_value(cursor, IS_LIVE, [job_id]))


def live(cursor: Cursor, first_id: int, last_id: int) -> int:
    """Return how many jobs of these ids are waiting or running."""
    return int(_value(cursor, LIVE, [first_id, last_id]))


def succeeded(cursor: Cursor, first_id: int, last_id: int) -> int:
    """Return how many jobs of these ids are in the archive as succeeded."""
    return int(_value(cursor, SUCCEEDED, [first_id, last_id]))


def all_live(cursor: Cursor) -> int:
    """Return how many jobs are waiting or running; reads the whole table."""
    return int(_value(cursor, ALL_LIVE))


def is_leased(cursor: Cursor) -> bool:
    """Whether any job is leased to a worker; reads the whole table."""
    return bool(_value(cursor, IS_LEASED))


def place_in_queue(cursor: Cursor, queue: str, place: int) -> int:
    """Return the id of the job at *place*, from 0, among the ready ones of *queue*."""
    return int(_value(cursor, PLACE_IN_QUEUE, [queue, place]))


# When rows were archived, and how many then: in the order of time. The jobs of one
# settle share their moment.
Finished = Sequence[tuple[datetime, int]]


class End(NamedTuple):
    """Where a partition of a topic ends."""

    topic_id: int
    partition: int
    last_id: int
    messages: int


def ends(cursor: Cursor, first_id: int) -> list[End]:
    """Return where the partitions end that have messages from *first_id* on."""
    cursor.execute(ENDS, [first_id])
    return [End(*row) for row in cursor.fetchall()]


def is_behind(cursor: Cursor, told: Sequence[End]) -> bool:
    """Whether some group has not read all of them up to their ends."""
    columns = [list(column) for column in zip(*told, strict=True)]
    return bool(_value(cursor, IS_BEHIND, columns[:3]))


def has_positions(cursor: Cursor) -> bool:
    """Whether a group has begun to read."""
    return bool(_value(cursor, HAS_POSITIONS))


def now(cursor: Cursor) -> datetime:
    """Return the server's clock."""
    moment: datetime = _value(cursor, NOW)
    return moment


def finished_since(cursor: Cursor, moment: datetime) -> Finished:
    """Return the moments since then at which jobs were archived, and how many."""
    return list(cursor.execute(FINISHED, [moment]).fetchall())


def transactions(cursor: Cursor) -> int:
    """Return how many transactions the cursor's database has seen."""
    return int(_value(cursor, TRANSACTIONS))


class Explaining:
    """
    A cursor that runs a statement under EXPLAIN ANALYZE, and gives no rows.

    Attributes:
        buffers: Pages that the statements so far have read.
        rows: What the last one would have given.
    """

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.buffers = 0
        self.rows = 0

    def execute(self, statement: str, params: Any = None) -> None:
        """Run and explain it; what it writes is written."""
        plan = _value(self._cursor, EXPLAIN + statement, params)[0]["Plan"]
        self.buffers += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        self.rows = int(plan["Actual Rows"])

    def fetchall(self) -> list[Any]:
        """Return no rows."""
        return []


def hold_horizon(cursor: Cursor) -> None:
    """Keep vacuum from removing what is deleted from now on, until let_go()."""
    cursor.execute(HOLD)
    cursor.execute(LOOK)


def let_go(cursor: Cursor) -> None:
    """End what hold_horizon() began."""
    cursor.execute(LET_GO)


def _value(cursor: Cursor, statement: str, params: Any = None) -> Any:
    cursor.execute(statement, params)
    return one_row(cursor)[0]
