"""
Ingest: batches of streams, positions of topics, and files that are rewritten.

The number of a batch is decided in a row before its files are moved, so a driver that
wakes up late moves nothing. The position says up to which message each topic is written
by its place; retention may wait for it.

A run that rewrites files takes a folder and writes the new files aside. It decides
in a transaction that holds its row: from then on these files are the folder's, and the
next run finishes the moves that are left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django_pgqueue.pipeline import runs
from django_pgqueue.pipeline.exports import IS_FREE
from django_pgqueue.postgres.cursor import Cursor, column

# Locks: none.
LATEST = """
SELECT number, run_id FROM pgqueue_ingest_batch WHERE stream = %(stream)s::uuid
"""

# Locks: the checkpoint's row, until the caller's transaction ends. It holds the run's
# row before, so no two runs come here at once.
DECIDE = """
INSERT INTO pgqueue_ingest_batch AS b (stream, number, run_id)
VALUES (%(stream)s::uuid, %(number)s, %(run)s)
ON CONFLICT (stream) DO UPDATE
   SET number = EXCLUDED.number, run_id = EXCLUDED.run_id
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """The latest batch of a checkpoint, and the run that has written it."""

    number: int
    run: int


def latest(cursor: Cursor, stream: str) -> Batch | None:
    """Return the batch of *stream* that was decided last, or None."""
    cursor.execute(LATEST, {"stream": stream})
    row = cursor.fetchone()
    return None if row is None else Batch(*row)


def decide(cursor: Cursor, stream: str, number: int, *, run: int) -> None:
    """Say that the batch is what *run*, which the transaction holds, has written."""
    cursor.execute(DECIDE, {"stream": stream, "number": number, "run": run})


# Locks: none.
TARGETS = "SELECT DISTINCT target FROM pgqueue_ingest_position ORDER BY target"
INGESTS = """
job = 'ingest' AND state = 'running' AND rtrim(options ->> 'path', '/') = %(target)s
"""
LIVE_INGEST = f"SELECT id FROM pgqueue_pipeline_run WHERE {INGESTS}"
LEFT = """
SELECT folder, put FROM pgqueue_ingest_rewrite WHERE target = %(target)s ORDER BY folder
"""

# Locks: a row lock on each run that is lost; a run that writes is waited for.
LOSE_INGEST = f"{runs.LOSE_LATE} AND {INGESTS}"

# Locks: the folder's row, until the caller's transaction ends; here and below.
TAKE = f"""
INSERT INTO pgqueue_ingest_rewrite AS e (target, folder, run_id)
VALUES (%(target)s, %(folder)s, %(run)s)
ON CONFLICT (target, folder) DO UPDATE
   SET run_id = EXCLUDED.run_id
 WHERE {IS_FREE}
RETURNING put, replaced
"""
DECIDE_REWRITE = """
UPDATE pgqueue_ingest_rewrite SET put = %(put)s::jsonb, replaced = %(replaced)s::jsonb
 WHERE target = %(target)s AND folder = %(folder)s AND run_id = %(run)s
"""
END = """
DELETE FROM pgqueue_ingest_rewrite
 WHERE target = %(target)s AND folder = %(folder)s AND run_id = %(run)s
"""


@dataclass(frozen=True, slots=True)
class Decided:
    """Names of files that a folder gets, and of those that it loses."""

    put: Sequence[str] = ()
    replaced: Sequence[str] = ()


def targets(cursor: Cursor) -> list[str]:
    """Return each place that messages were ingested to."""
    return list(map(str, column(cursor, TARGETS)))


def live_ingest(cursor: Cursor, target: str) -> int | None:
    """Return the run that ingests to *target* now; one whose process died is lost."""
    cursor.execute(LOSE_INGEST, {"target": target})
    cursor.execute(LIVE_INGEST, {"target": target})
    row = cursor.fetchone()
    return None if row is None else int(row[0])


def left(cursor: Cursor, target: str) -> Mapping[str, Sequence[str]]:
    """Return the folders that some run has, with the files that they get."""
    cursor.execute(LEFT, {"target": target})
    return dict(cursor.fetchall())


def take(cursor: Cursor, target: str, folder: str, *, run: int) -> Decided | None:
    """Give *run* a folder; return what is left to do there, None if it is another's."""
    cursor.execute(TAKE, {"target": target, "folder": folder, "run": run})
    row = cursor.fetchone()
    return None if row is None else Decided(*row)


def decide_rewrite(
    cursor: Cursor, target: str, folder: str, decided: Decided, *, run: int
) -> bool:
    """Say which files the folder has from now on; return whether it is the run's."""
    values = {"target": target, "folder": folder, "run": run}
    put, replaced = json.dumps(decided.put), json.dumps(decided.replaced)
    cursor.execute(DECIDE_REWRITE, {**values, "put": put, "replaced": replaced})
    return bool(cursor.rowcount)


def end(cursor: Cursor, target: str, folder: str, *, run: int) -> None:
    """Give a folder back, in which nothing is left to do."""
    cursor.execute(END, {"target": target, "folder": folder, "run": run})


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
