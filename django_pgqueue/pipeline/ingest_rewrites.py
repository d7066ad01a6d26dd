"""
Ingest rewrites: which run replaces files of ingest in a folder, and by which others.

A run takes a folder, and writes the new files aside. Then it decides, in a transaction
that holds its row: from then on these files are the folder's, and whoever has it next
finishes what is left to move and to delete. So a run that was paused, and whose place
another one has taken, decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django_pgqueue.pipeline import runs
from django_pgqueue.pipeline.exports import IS_FREE
from django_pgqueue.postgres.cursor import Cursor

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
DECIDE = """
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
    cursor.execute(TARGETS)
    return [str(row[0]) for row in cursor.fetchall()]


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


def decide(
    cursor: Cursor, target: str, folder: str, decided: Decided, *, run: int
) -> bool:
    """Say which files the folder has from now on; return whether it is the run's."""
    values = {"target": target, "folder": folder, "run": run}
    put, replaced = json.dumps(decided.put), json.dumps(decided.replaced)
    cursor.execute(DECIDE, {**values, "put": put, "replaced": replaced})
    return bool(cursor.rowcount)


def end(cursor: Cursor, target: str, folder: str, *, run: int) -> None:
    """Give a folder back, in which nothing is left to do."""
    cursor.execute(END, {"target": target, "folder": folder, "run": run})
