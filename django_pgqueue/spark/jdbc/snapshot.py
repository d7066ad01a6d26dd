"""
Snapshot: one state of the database, for all tasks of a read and for several tables.

A job that is settled moves from the queue to the archive. Two reads, or two tasks of
one, that look at different moments find it twice or not at all; with one snapshot it is
in one of them. The driver holds the snapshot in a transaction of its own, and each task
takes it over when it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.dsn import DsnSource, find_dsn

# Locks: none; but no row that died after the snapshot was taken is vacuumed while it is
# held. It would be lost with a transaction that ends for being idle.
BEGIN = (
    "SET idle_in_transaction_session_timeout = 0",
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
)
EXPORT = "SELECT pg_export_snapshot() AS name"

# The first statement of each task's transaction.
TAKE = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{name}'"
)


@dataclass(slots=True)
class Snapshot:
    """
    A snapshot that the driver holds; snapshot() makes it.

    Attributes:
        name: What PostgreSQL calls it.
        dsn: Where it is.
        has_ended: Whether nothing can be read by it any more.
    """

    name: str
    dsn: DsnSource
    has_ended: bool = False

    @property
    def statement(self) -> str:
        """What a task begins with, to see it."""
        return TAKE.format(name=self.name)


@contextmanager
def snapshot(spark: Any, dsn: DsnSource | None = None) -> Iterator[Snapshot]:
    """
    Hold a snapshot until the end of the `with`.

    DataFrames are read when they are used, so use them inside. Vacuum waits for the
    snapshot meanwhile, as for any transaction that is as old.

    Args:
        spark: A SparkSession.
        dsn: Where the database is; None: $PGQUEUE_DSN.

    Raises:
        SparkError: The database cannot be reached.
    """
    where = dsn or DsnSource()
    with Session(find_dsn(spark, where), table="snapshot") as session:
        session.execute(*BEGIN)
        (row,) = session.rows(EXPORT, copies=False)
        held = Snapshot(str(row["name"]), where)
        try:
            yield held
        finally:
            held.has_ended = True
