"""Declare: the rows of topics."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

# Locks: a row lock on the topic until the caller's transaction ends, where something
# is written: what it says is new, or was last said more than an hour ago. In READ
# COMMITTED a second one waits and finds nothing to do. How many partitions a topic has
# is said once, when its row is made.
DECLARE = """
INSERT INTO pgqueue_topic AS t (name, partitions, retain, schema, declared,
                                last_declared_at)
VALUES (%(name)s, %(partitions)s, %(retain)s::interval, %(schema)s,
        %(declared)s::jsonb, clock_timestamp())
ON CONFLICT (name) DO UPDATE
   SET retain = excluded.retain, schema = excluded.schema,
       declared = excluded.declared, last_declared_at = excluded.last_declared_at
 WHERE t.declared IS DISTINCT FROM excluded.declared
    OR t.last_declared_at < clock_timestamp() - interval '1 hour'
RETURNING partitions
"""

CHANGES = """
SELECT NOT EXISTS (SELECT FROM pgqueue_topic
                    WHERE name = %(name)s AND declared = %(declared)s::jsonb)
"""


def declare(
    cursor: Any,
    name: str,
    *,
    partitions: int,
    retain: timedelta | None,
    schema: str | None,
) -> bool:
    """Write what code says of a topic; return whether that is new."""
    params = {
        "name": name,
        "partitions": partitions,
        "retain": retain,
        "schema": schema,
        "declared": json.dumps(
            {
                "partitions": partitions,
                "retain_seconds": None if retain is None else retain.total_seconds(),
                "schema": schema,
            }
        ),
    }
    cursor.execute(CHANGES, params)
    (is_new,) = cursor.fetchone()
    cursor.execute(DECLARE, params)
    return bool(is_new)
