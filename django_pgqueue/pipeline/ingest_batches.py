"""
Ingest batches: which run's files the latest batch of a checkpoint is made of.

Each run writes a batch into a folder of its own. Then it says so here, in a transaction
that holds its row; and from then on that folder is the batch, for each run that moves
its files. So a run that was paused, and whose place another one has taken, neither
decides nor adds anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from django_pgqueue.postgres.cursor import Cursor

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
