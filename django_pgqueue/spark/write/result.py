"""
Result: what became of a write, for whoever started it.

Spark's save() returns nothing, and what a sink counts stays in processes of its own; so
the numbers stand in the journal, under the name that the write was given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from django_pgqueue.exceptions import SparkError
from django_pgqueue.postgres.cursor import one_row
from django_pgqueue.spark.write import journal
from django_pgqueue.spark.write.journal import WriteResult
from django_pgqueue.spark.write.options import parse
from django_pgqueue.spark.write.reap import reap_with
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


# Once -------------------------------------------------------------------------------
# The journal decides: a name is committed once, by whoever comes first, and the rows of
# the write are jobs all together or not at all. So whatever died in between, running it
# again stores each row once.

# Of a name that nobody gave.
DIGEST_CHARACTERS = 12

# Locks: none.
NOW = "SELECT clock_timestamp()"


def look_up(
    dsn: str, name: str, *, takes_over: bool = False
) -> tuple[WriteResult | None, datetime]:
    """
    Return the committed write of *name*, None: it is free; and the database's time.

    Args:
        takes_over: Roll back an open write of that name, whose driver is known to be
            dead.

    Raises:
        SparkError: A write of that name is under way; or the database cannot be used.
    """
    with session(dsn) as connection:
        if takes_over:
            reap_with(connection, name=name)
        (now,) = one_row(connection.execute(NOW))
        return journal.look_up(connection, name), now


def digest(options: Mapping[str, Any]) -> str:
    """Return the end of a name that nobody gave: the same for the same options."""
    # Without those that are not given: an option to come changes no name.
    given = {name: said for name, said in options.items() if said is not None}
    told = json.dumps(given, sort_keys=True)
    return sha256(told.encode()).hexdigest()[:DIGEST_CHARACTERS]


def told(name: str, result: WriteResult, what: str) -> str:
    """Return that a name was written, and *what*, in words."""
    assert result.ended_at is not None
    return (
        f"{name!r} was written already, at "
        f"{result.ended_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC: {what}. Nothing was "
        f"written again."
    )


def write_named(frame: Any, options: Mapping[str, str], dsn: str) -> WriteResult:
    """
    Write *frame* as jobs, and return what the journal at *dsn* says of it.

    The options are those of format("pgqueue"), with a name.

    Raises:
        SparkError: It was written to another database.
    """
    frame.write.format("pgqueue").mode("append").options(**options).save()
    with session(dsn) as connection:
        result = journal.read_by_name(connection, options["name"])
    if result is None:
        raise SparkError(
            f"Write {options['name']!r} is not in the journal of this database: "
            f"${parse(options).dsn.variable} leads Spark to another one."
        )
    return result
