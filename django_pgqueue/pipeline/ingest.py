"""
Ingest: where messages are, and up to which id each topic is there.

The position says up to which message each topic is written by its place; retention may
wait for it. Which batches are there, the Delta table says itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from django_pgqueue.postgres.cursor import Cursor, column

# Locks: none.
TARGETS = "SELECT DISTINCT target FROM pgqueue_ingest_position ORDER BY target"

# Locks: a row lock on each position until the caller's transaction ends; one run at a
# time comes here with a topic and a target, since it holds its own row.
NOTE = """
INSERT INTO pgqueue_ingest_position AS p (topic_id, target, read_to, run_id)
SELECT t.id, %(target)s, asked.read_to, %(run)s
  FROM unnest(%(names)s::text[], %(positions)s::bigint[]) AS asked(name, read_to)
  JOIN pgqueue_topic t ON t.name = asked.name
 ORDER BY t.id
ON CONFLICT (topic_id, target) DO UPDATE
   SET read_to = greatest(p.read_to, EXCLUDED.read_to), run_id = EXCLUDED.run_id,
       read_at = clock_timestamp()
"""


def targets(cursor: Cursor) -> list[str]:
    """Return each place that messages were ingested to."""
    return column(cursor, TARGETS)


def note(cursor: Cursor, target: str, read_to: Mapping[str, int], *, run: int) -> None:
    """
    Say up to which id topics are at *target*, all of their messages.

    Args:
        cursor: In a transaction that holds the run.
        target: Where they were written.
        read_to: By the topic's name.
        run: The id of the run.
    """
    params = {
        "target": target,
        "run": run,
        "names": list(read_to),
        "positions": list(read_to.values()),
    }
    cursor.execute(NOTE, params)
