"""
Result: what became of a write, for whoever started it.

Spark's save() returns nothing, and what a sink counts stays in processes of its own; so
the numbers stand in the journal, under the name that the write was given.
"""

from __future__ import annotations

from django_pgqueue.spark.write import journal
from django_pgqueue.spark.write.journal import WriteResult
from django_pgqueue.spark.write.session import session


def read_result(dsn: str, name: str) -> WriteResult | None:
    """
    Return what became of the latest write of a name; None: there is none.

    Args:
        dsn: The database.
        name: The option name of the write.

    Raises:
        SparkError: The database cannot be reached.
    """
    with session(dsn) as connection:
        return journal.read_by_name(connection, name)
