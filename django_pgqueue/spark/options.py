"""Options: what .option(…) of a read may say, checked before anything is read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django_pgqueue.exceptions import SparkOptionError, TopicError, did_you_mean
from django_pgqueue.log.names import check_topic
from django_pgqueue.redaction.names import REDACT_DEFAULT
from django_pgqueue.spark.dsn import DsnSource
from django_pgqueue.spark.log.offsets import (
    FAIL,
    ON_DATA_LOSS,
    Place,
    check_topics,
    parse_place,
)
from django_pgqueue.spark.option_table import (
    WHERE,
    Option,
    Whole,
    Word,
    read,
)
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.tables import JOBS, LOG, TABLES, Column, Table

ROWS_PER_BATCH = 500_000
ROWS_PER_BATCH_MAX = 100_000_000

PARTITIONS_MAX = 10_000
PARTITIONS = Whole(1, PARTITIONS_MAX)
ROWS_PER_SECOND_MAX = 100_000_000


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What one read was asked for."""

    table: Table = JOBS
    # None: all of the table's.
    columns: tuple[Column, ...] | None = None
    # None: as many as the size of the table asks for.
    partitions: int | None = None
    # Of all tasks together; None: as fast as it goes.
    rows_per_second_max: int | None = None
    dsn: DsnSource = field(default_factory=DsnSource)
    # None: what the session says, else the default patterns.
    redact: tuple[str, ...] | None = None
    # Of the log. None: all topics.
    topics: tuple[str, ...] | None = None
    # None: of a read the earliest message, of a stream the latest.
    starting: Place | None = None
    ending: Place | None = None
    max_rows_per_batch: int = ROWS_PER_BATCH
    on_data_loss: str = FAIL

    def redaction(self, known: Redaction) -> Redaction:
        """Return what is hidden, where a session says *known*."""
        return known if self.redact is None else replace(known, patterns=self.redact)

    @property
    def tasks_max(self) -> int | None:
        """How many tasks read; None: as many as the size of the table asks for."""
        is_paced = self.rows_per_second_max is not None
        return 1 if self.partitions is None and is_paced else self.partitions

    def rate_of(self, tasks: Sequence[object]) -> float | None:
        """Return the rows a second of each task: of all, though not all run at once."""
        rate = self.rows_per_second_max
        return rate / len(tasks) if rate and tasks else None


def parse(options: Mapping[str, str], *, streams: bool | None = None) -> ReadOptions:
    """
    Read the options of one DataFrame.

    It is one of readStream if it *streams*; None: that is not known yet.

    Raises:
        SparkOptionError: An unknown option, or a value that cannot be; with the
            nearest known one.
    """
    given = read(READS, options)
    table = given.get("table", JOBS)
    _check_log(given, table, streams)
    for option in ("starting", "ending"):
        if option in given:
            check_topics(option, given[option], given.get("topics"))
    if "columns" in given:
        given["columns"] = select(given["columns"], table)
    return ReadOptions(**given)


def select(names: list[str], table: Table) -> tuple[Column, ...]:
    """
    Return the columns *names* of *table*, in that order.

    Raises:
        SparkOptionError: One is unknown, or named twice, or there is none.
    """
    columns = []
    known = {column.name: column for column in table.columns}
    for name in names:
        if name not in known:
            raise SparkOptionError(
                f"Table {table.name} has no column {name!r}."
                f"{did_you_mean(name, list(known))} The columns are {', '.join(known)}."
            )
        if known[name] in columns:
            raise SparkOptionError(f"Column {name!r} is asked for twice.")
        columns.append(known[name])
    if not columns:
        raise SparkOptionError("Ask for one column at least: id, say.")
    return tuple(columns)


def _check_log(given: Mapping[str, Any], table: Table, streams: bool | None) -> None:
    """Raise SparkOptionError for options that are not of this table or this read."""
    if streams and not table.is_log:
        raise SparkOptionError(
            f"Only the table log can be streamed: "
            f'.option("table", "{LOG.name}").option("topic", "orders").'
        )
    if streams and "topics" not in given:
        raise SparkOptionError(
            "A stream needs the option topic: one topic, or several with commas "
            "between. Its checkpoint has a position for each."
        )
    how = {True: STREAM, False: READ, None: None}[streams]
    for option in READS:
        if not option.of or option.field not in given:
            continue
        if not table.is_log:
            raise SparkOptionError(
                f"The option {option.name} is for the table {LOG.name}, and not for "
                f"{table.name}."
            )
        if how is not None and option.of not in (LOG.name, how):
            raise SparkOptionError(
                f"The option {option.name} is for {option.of}, and not for {how}."
            )


def _topics(name: str, text: str) -> tuple[str, ...]:
    names = {each.strip() for each in text.split(",") if each.strip()}
    try:
        return tuple(sorted(map(check_topic, names or {""})))
    except TopicError as error:
        raise SparkOptionError(f"The option {name} is {text[:80]!r}: {error}") from None


def _table(name: str, text: str) -> Table:
    if text not in TABLES:
        raise SparkOptionError(
            f"The option {name} is {text!r}.{did_you_mean(text, list(TABLES))} "
            f"The tables are {', '.join(TABLES)}."
        )
    return TABLES[text]


def _columns(name: str, text: str) -> list[str]:
    return [column.strip() for column in text.split(",") if column.strip()]


def _patterns(name: str, text: str) -> tuple[str, ...]:
    wrong = SparkOptionError(
        f"The option {name} is {text[:80]!r}; it must be a JSON list of regular "
        f'expressions, such as ["{REDACT_DEFAULT[0]}", "iban"].'
    )
    try:
        patterns = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(patterns, list) or not all(
        isinstance(pattern, str) and pattern for pattern in patterns
    ):
        raise wrong
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise SparkOptionError(
                f"The option {name} has {pattern!r}, which is no regular expression: "
                f"{error}."
            ) from None
    return tuple(patterns)


# What is alone for one way to read the log.
READ, STREAM = "read", "readStream"

READS = (
    Option("table", "table", _table),
    Option("columns", "columns", _columns),
    Option("partitions", "partitions", PARTITIONS),
    Option("maxRowsPerSecond", "rows_per_second_max", Whole(1, ROWS_PER_SECOND_MAX)),
    *WHERE,
    Option("redact", "redact", _patterns),
    Option("topic", "topics", _topics, of=LOG.name),
    Option("starting", "starting", parse_place, of=LOG.name),
    Option("ending", "ending", parse_place, of=READ),
    Option(
        "maxRowsPerBatch", "max_rows_per_batch", Whole(1, ROWS_PER_BATCH_MAX), of=STREAM
    ),
    Option("onDataLoss", "on_data_loss", Word(ON_DATA_LOSS), of=STREAM),
)
