"""Declare: the rows of topics."""

from __future__ import annotations

import json
from datetime import timedelta

from django_pgqueue.postgres.cursor import Cursor, one_row

# Locks: a row lock on the topic until the caller's transaction ends, where something
# is written: what it says is new, or was last said more than an hour ago. A second one
# that makes the row waits and finds nothing to do. How many partitions a topic has is
# said here when its row is made, and later by a repartition alone.
#
# No ON CONFLICT DO UPDATE: each would use up an id, at every start of a worker.
DECLARE = """
WITH again AS (
    UPDATE pgqueue_topic
       SET retain = %(retain)s::interval, retain_bytes = %(retain_bytes)s,
           wait_for_ingest = %(wait_for_ingest)s::interval, schema = %(schema)s,
           declared = %(declared)s::jsonb, last_declared_at = clock_timestamp()
     WHERE name = %(name)s
       AND (declared IS DISTINCT FROM %(declared)s::jsonb
            OR last_declared_at < clock_timestamp() - interval '1 hour'))
INSERT INTO pgqueue_topic (name, partitions, retain, retain_bytes, wait_for_ingest,
                           schema, declared, last_declared_at)
SELECT %(name)s, %(partitions)s, %(retain)s::interval, %(retain_bytes)s,
       %(wait_for_ingest)s::interval, %(schema)s, %(declared)s::jsonb, clock_timestamp()
 WHERE NOT EXISTS (SELECT FROM pgqueue_topic WHERE name = %(name)s)
    ON CONFLICT (name) DO NOTHING
"""

CHANGES = """
SELECT NOT EXISTS (SELECT FROM pgqueue_topic
                    WHERE name = %(name)s AND declared = %(declared)s::jsonb)
"""


def declare(
    cursor: Cursor,
    name: str,
    *,
    partitions: int,
    retain: timedelta | None,
    retain_bytes: int | None,
    wait_for_ingest: timedelta | None,
    schema: str | None,
) -> bool:
    """Write what code says of a topic; return whether that is new."""
    params = {
        "name": name,
        "partitions": partitions,
        "retain": retain,
        "retain_bytes": retain_bytes,
        "wait_for_ingest": wait_for_ingest,
        "schema": schema,
        "declared": json.dumps(
            {
                "partitions": partitions,
                "retain_seconds": _seconds(retain),
                "schema": schema,
                # Rows of before have no such words.
                **{
                    name: value
                    for name, value in (
                        ("retain_bytes", retain_bytes),
                        ("wait_for_ingest_seconds", _seconds(wait_for_ingest)),
                    )
                    if value is not None
                },
            }
        ),
    }
    cursor.execute(CHANGES, params)
    (is_new,) = one_row(cursor)
    cursor.execute(DECLARE, params)
    return bool(is_new)


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()
