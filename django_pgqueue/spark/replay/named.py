"""
Named: what the database does by itself, once under a name, as a write of Spark is.

One transaction has it all, and the row of the journal that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from psycopg import Rollback

from django_pgqueue.postgres.wake import wake
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.write import journal, result
from django_pgqueue.spark.write.journal import Outcome, Write

# Puts what is to be there into the transaction, and says what that was.
Work = Callable[[Any, Write, Outcome], None]


def is_written(run: Run, name: str) -> bool:
    """
    Whether a write of that name is committed, which is told by a note.

    Raises:
        SparkError: One is under way.
    """
    found, _ = result.look_up(run.dsn, name, takes_over=True)
    if found is None:
        return False
    run.note(result.told(name, found, f"{found.written or 0:,} rows"))
    return True


def write(run: Run, name: str, work: Work, *, keeps_empty: bool = False) -> Outcome:
    """
    Do *work* and note it under *name*, in one transaction that a live run commits.

    Args:
        work: Called with a connection, the write and its outcome; statements alone.
        keeps_empty: Keep what has no rows; else the name stays free.

    Raises:
        SparkError: Another was quicker under that name.
    """
    made = Write(uuid4(), name, "", None)
    outcome = Outcome()
    with run.transaction(is_brief=True) as cursor:
        connection = cursor.connection
        journal.begin(connection, made)
        connection.execute(journal.NO_STAGE, {"id": made.id})
        work(connection, made, outcome)
        if not outcome.rows and not keeps_empty:
            run.note("There was nothing to replay.")
            raise Rollback
        journal.decide(connection, made, outcome, skipped=0)
        wake(cursor, sorted(outcome.queues | outcome.hints))
    return outcome
