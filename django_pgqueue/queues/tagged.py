"""
Tagged: the jobs that have a tag, when they are few.

The index of tags finds them, but in no order: a tag that half of all jobs have is found
sooner by looking at the latest jobs. So the answer is the few, or that there are more.
"""

from __future__ import annotations

import json

from django_pgqueue.postgres.cursor import Cursor

# Locks: none. MATERIALIZED: planned for all rows that have the tag, and read no
# further than the limit; planned together, the limit led to a walk along another index.
TAGGED = """
WITH tagged AS MATERIALIZED (
    SELECT id FROM {table} WHERE headers -> 'tags' @> %(tags)s::jsonb)
SELECT id FROM tagged LIMIT %(limit)s
"""
TAGGED_JOBS = TAGGED.format(table="pgqueue_job")
TAGGED_ARCHIVED = TAGGED.format(table="pgqueue_archived_job")
TAGGED_DEAD_LETTERS = TAGGED.format(table="pgqueue_dead_letter")
del TAGGED

STATEMENTS = {
    "pgqueue_job": TAGGED_JOBS,
    "pgqueue_archived_job": TAGGED_ARCHIVED,
    "pgqueue_dead_letter": TAGGED_DEAD_LETTERS,
}


def tagged(cursor: Cursor, *, table: str, tag: str, limit: int) -> list[int] | None:
    """
    Return the ids of all rows that have *tag*; None: there are more than *limit*.

    Args:
        cursor: An open cursor.
        table: pgqueue_job, pgqueue_archived_job or pgqueue_dead_letter.
        tag: The whole tag.
        limit: How many ids are read at most.
    """
    params = {"tags": json.dumps([tag]), "limit": limit + 1}
    cursor.execute(STATEMENTS[table], params)
    ids = [row_id for (row_id,) in cursor.fetchall()]
    return None if len(ids) > limit else ids
