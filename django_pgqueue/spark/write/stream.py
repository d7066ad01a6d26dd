"""
Stream: each batch of a streaming query becomes jobs, once.

    rows.writeStream.foreachBatch(write_batches("receipts", task="shop.tasks.send"))

A batch is written under a name that has the checkpoint's own id in it. Without that, a
new checkpoint, which numbers its batches from 0 again, would meet the names of the old
one, and its rows would be taken for written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django_pgqueue.exceptions import SparkError, SparkOptionError
from django_pgqueue.spark.dsn import find_dsn
from django_pgqueue.spark.write import result
from django_pgqueue.spark.write.options import NAME_CHARACTERS_MAX, parse

# What Spark says of a query in the thread that runs its batches. The id is the
# checkpoint's: it stands in its file `metadata`.
QUERY_ID = "sql.streaming.queryId"

# Of a name: the id and the number of the batch get the rest.
BATCH_CHARACTERS = 36 + 20 + 2

logger = logging.getLogger("django_pgqueue.spark")


def write_batches(name: str, **options: str) -> Callable[[Any, int], None]:
    """
    Return what foreachBatch() takes, to write the rows of each batch as jobs.

    A batch that Spark runs again, after a crash between our commit and its own, is
    found written and left out. A new checkpoint is another stream: its batches are
    written.

    Args:
        name: Of the stream, up to 42 characters.
        options: Those of format("pgqueue") for writing, without a name.

    Raises:
        SparkOptionError: An option is wrong, or the name too long.
    """
    longest = NAME_CHARACTERS_MAX - BATCH_CHARACTERS
    if not 1 <= len(name) <= longest or not name.isprintable():
        raise SparkOptionError(
            f"The name of a stream has {len(name)} characters; it must have 1 to "
            f"{longest}, all printable: its checkpoint's id and the number of the "
            f"batch are added."
        )
    if "name" in {option.casefold() for option in options}:
        raise SparkOptionError(
            "The option name is made for each batch: give the stream's as the first "
            "argument."
        )
    dsn = parse(options).dsn

    def write_batch(frame: Any, number: int) -> None:
        given = {**options, "name": f"{name} {query_id(frame)} {number}"}
        where = find_dsn(frame.sparkSession, dsn)
        found, _ = result.look_up(where, given["name"], takes_over=True)
        if found is not None:
            logger.info("jobs of a batch are there already name=%s", given["name"])
            return
        result.write_named(frame, given, where)

    return write_batch


def query_id(frame: Any) -> str:
    """
    Return the id of the checkpoint that a batch is of.

    Raises:
        SparkError: *frame* is no batch of a streaming query, or one of Spark Connect.
    """
    context = getattr(frame.sparkSession, "sparkContext", None)
    found = None if context is None else context.getLocalProperty(QUERY_ID)
    if not found:
        raise SparkError(
            "This DataFrame is no batch of a streaming query of this process, so there "
            "is no checkpoint to tell its batches from those of another: call it from "
            "foreachBatch(), and not through Spark Connect."
        )
    return str(found)
