"""
Options: what .option(…) of format("pgqueue") may say, checked before anything is read.

Options are text, and stand in plans and in Spark's UI. So there is none for a DSN.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django_pgqueue.exceptions import SparkOptionError, did_you_mean
from django_pgqueue.redaction.names import REDACT_DEFAULT
from django_pgqueue.spark.dsn import DEFAULT_VARIABLE, DsnSource
from django_pgqueue.spark.log.check import FAIL, ON_DATA_LOSS
from django_pgqueue.spark.log.starting import Place, check_topics
from django_pgqueue.spark.log.starting import parse as parse_place
from django_pgqueue.spark.tables import JOBS, LOG, TABLES, Column, Table

KNOWN = (
    "table",
    "columns",
    "query",
    "divideBy",
    "partitions",
    "maxRowsPerSecond",
    "dsnEnv",
    "dsnFile",
    "redact",
    "topic",
    "starting",
    "ending",
    "maxRowsPerBatch",
    "onDataLoss",
)

# Of the table log alone; of those, what only a read or only a stream takes.
OF_LOG = ("topic", "starting", "ending", "maxRowsPerBatch", "onDataLoss")
OF_READ = ("ending",)
OF_STREAM = ("maxRowsPerBatch", "onDataLoss")

ROWS_PER_BATCH = 500_000
ROWS_PER_BATCH_MAX = 100_000_000

PARTITIONS_MAX = 10_000
ROWS_PER_SECOND_MAX = 100_000_000
QUERY_CHARACTERS_MAX = 100_000

# A query says what is read, and names no secrets of ours.
NOT_WITH_QUERY = ("table", "columns", "redact")
# One statement is neither divided nor slowed down.
NEED_DIVIDE_BY = ("partitions", "maxRowsPerSecond")

# What people try, from other sources. The value is never repeated.
CONNECTIONS = frozenset(
    {"dsn", "url", "uri", "user", "password", "host", "dbname", "database", "dburl"}
)

TOPIC = re.compile(r"[A-Za-z0-9_-]{1,63}")
TOPIC_WORDS = "1 to 63 letters, digits, '_' and '-'"

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What one read was asked for."""

    table: Table = JOBS
    # None: all of the table's.
    columns: tuple[Column, ...] | None = None
    # A SELECT, instead of a table.
    query: str | None = None
    # The column of whole numbers by whose ranges a query is read; None: all at once.
    divide_by: str | None = None
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


def parse(options: Mapping[str, str], *, streams: bool | None = None) -> ReadOptions:
    """
    Read the options of one DataFrame.

    Args:
        options: What .option(…) was given.
        streams: Whether it is one of readStream; None: not known yet.

    Raises:
        SparkOptionError: An unknown option, or a value that cannot be; with the
            nearest known one.
    """
    given = {str(key).casefold(): value for key, value in options.items()}
    check_names(given, KNOWN)
    _check_query_alone(given)
    table = _table(given.get("table", JOBS.name))
    _check_log(given, table, streams)
    topics = optional(given, "topic", _topics)
    places = {
        option: optional(given, option, partial(parse_place, option))
        for option in ("starting", "ending")
    }
    for option, place in places.items():
        if place is not None:
            check_topics(option, place, topics)
    return ReadOptions(
        table=table,
        columns=optional(given, "columns", lambda text: _columns(text, table)),
        query=optional(given, "query", _query),
        divide_by=given.get("divideby"),
        partitions=optional(
            given,
            "partitions",
            lambda text: number("partitions", text, 1, PARTITIONS_MAX),
        ),
        rows_per_second_max=optional(
            given,
            "maxrowspersecond",
            lambda text: number("maxRowsPerSecond", text, 1, ROWS_PER_SECOND_MAX),
        ),
        dsn=dsn_source(given),
        redact=optional(given, "redact", _patterns),
        topics=topics,
        starting=places["starting"],
        ending=places["ending"],
        max_rows_per_batch=optional(
            given,
            "maxrowsperbatch",
            lambda text: number("maxRowsPerBatch", text, 1, ROWS_PER_BATCH_MAX),
        )
        or ROWS_PER_BATCH,
        on_data_loss=optional(given, "ondataloss", _on_data_loss) or FAIL,
    )


def select(names: list[str], table: Table) -> tuple[Column, ...]:
    """
    Return the columns *names* of *table*, in that order.

    Raises:
        SparkOptionError: One is unknown, or named twice, or there is none.
    """
    columns = []
    for name in names:
        column = table.column(name)
        if column is None:
            known = [c.name for c in table.columns]
            raise SparkOptionError(
                f"Table {table.name} has no column {name!r}.{did_you_mean(name, known)}"
                f" The columns are {', '.join(known)}."
            )
        if column in columns:
            raise SparkOptionError(f"Column {name!r} is asked for twice.")
        columns.append(column)
    if not columns:
        raise SparkOptionError("Ask for one column at least: id, say.")
    return tuple(columns)


def check_names(given: Mapping[str, str], names: Sequence[str]) -> None:
    """Raise SparkOptionError for an option that is none of *names*."""
    known = {name.casefold(): name for name in names}
    for name in given:
        if name in CONNECTIONS:
            raise SparkOptionError(
                f"There is no option {name!r}: options stand in plans and in Spark's "
                f"UI, passwords too. Put the DSN into the environment variable "
                f"{DEFAULT_VARIABLE}, or name another variable by the option dsnEnv, "
                f"or a file by dsnFile."
            )
        if name not in known:
            raise SparkOptionError(
                f"Unknown option {name!r}.{did_you_mean(name, list(names))} "
                f"The options are {', '.join(names)}."
            )


def optional(given: Mapping[str, str], name: str, read: Callable[[str], Any]) -> Any:
    """Return what *read* makes of the option *name*, or None where it is not given."""
    return read(given[name]) if name in given else None


def _check_query_alone(given: Mapping[str, str]) -> None:
    """Raise SparkOptionError for options that say nothing together."""
    if "query" not in given:
        if "divideby" in given:
            raise SparkOptionError(
                "The option divideBy is for a query: a table is divided by itself."
            )
        return
    for name in NOT_WITH_QUERY:
        if name in given:
            raise SparkOptionError(
                f"The options query and {name} cannot go together: a query says by "
                f"itself what is read, and nothing of it is hidden."
            )
    if "divideby" not in given:
        for name in NEED_DIVIDE_BY:
            if name.casefold() in given:
                raise SparkOptionError(
                    f"The option {name} needs divideBy, a column of whole numbers of "
                    f"the query: without one it is one statement."
                )


def _check_log(given: Mapping[str, str], table: Table, streams: bool | None) -> None:
    """Raise SparkOptionError for options that are not of this table or this read."""
    if streams and ("query" in given or not table.is_log):
        raise SparkOptionError(
            f"Only the table log can be streamed: "
            f'.option("table", "{LOG.name}").option("topic", "orders").'
        )
    if streams and "topic" not in given:
        raise SparkOptionError(
            "A stream needs the option topic: one topic, or several with commas "
            "between. Its checkpoint has a position for each."
        )
    wrong = {False: OF_STREAM, True: OF_READ, None: ()}[streams]
    for name in OF_LOG:
        if name.casefold() not in given:
            continue
        if "query" in given or not table.is_log:
            raise SparkOptionError(
                f"The option {name} is for the table {LOG.name}, and not for "
                f"{'a query' if 'query' in given else table.name}."
            )
        if name in wrong:
            raise SparkOptionError(
                f"The option {name} is for {'read' if streams else 'readStream'}, and "
                f"not for {'readStream' if streams else 'read'}."
            )


def _topics(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    wrong = [name for name in names if not TOPIC.fullmatch(name)]
    if wrong or not names:
        raise SparkOptionError(
            f"The option topic is {text[:80]!r}; it must be a topic, or several with "
            f"commas between: {TOPIC_WORDS}. What comes after a dot is of a message's "
            f"name."
        )
    return tuple(sorted(set(names)))


def _on_data_loss(text: str) -> str:
    if text not in ON_DATA_LOSS:
        raise SparkOptionError(
            f"The option onDataLoss is {text[:40]!r}."
            f"{did_you_mean(text, list(ON_DATA_LOSS))} It must be one of "
            f"{', '.join(ON_DATA_LOSS)}."
        )
    return text


def _query(text: str) -> str:
    query = text.strip().removesuffix(";").rstrip()
    if not query or "\0" in query or len(query) > QUERY_CHARACTERS_MAX:
        raise SparkOptionError(
            f"The option query has {len(query):,} characters; it must be a SELECT of "
            f"up to {QUERY_CHARACTERS_MAX:,}, without NUL."
        )
    return query


def _table(name: str) -> Table:
    if name not in TABLES:
        raise SparkOptionError(
            f"The option table is {name!r}.{did_you_mean(name, list(TABLES))} "
            f"The tables are {', '.join(TABLES)}."
        )
    return TABLES[name]


def _columns(text: str, table: Table) -> tuple[Column, ...]:
    return select([name.strip() for name in text.split(",") if name.strip()], table)


def number(name: str, text: str, low: int, high: int) -> int:
    """Return the option *name* as a whole number; raise SparkOptionError."""
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise SparkOptionError(
            f"The option {name} is {text[:40]!r}; it must be a whole number from {low} "
            f"to {high:,}."
        )
    return value


def dsn_source(given: Mapping[str, str]) -> DsnSource:
    """Return where the options say that the DSN is; raise SparkOptionError."""
    if "dsnenv" in given and "dsnfile" in given:
        raise SparkOptionError("Give one of the options dsnEnv and dsnFile, not both.")
    variable = given.get("dsnenv", DEFAULT_VARIABLE)
    if not VARIABLE.fullmatch(variable):
        # Whoever has put the DSN itself here is not shown it in the logs as well.
        raise SparkOptionError(
            f"The option dsnEnv must be the name of an environment variable, such as "
            f"{DEFAULT_VARIABLE}; a DSN itself belongs into that variable."
        )
    return DsnSource(variable, given.get("dsnfile"))


def _patterns(text: str) -> tuple[str, ...]:
    wrong = SparkOptionError(
        f"The option redact is {text[:80]!r}; it must be a JSON list of regular "
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
                f"The option redact has {pattern!r}, which is no regular expression: "
                f"{error}."
            ) from None
    return tuple(patterns)
