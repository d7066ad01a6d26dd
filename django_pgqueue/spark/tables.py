"""
Tables: what can be read, as a contract with a version.

A column keeps its name, its type and its meaning for as long as CONTRACT_VERSION stays.
A new column raises it, and so does one that goes: whoever writes SELECT * into Parquet
sees both. docs/reference/spark.md has the same lists, and a test holds the database to
them too.

Types are Spark's. What is JSON in the database is a string of JSON here, redacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django_pgqueue.extras import arrow

CONTRACT_VERSION = 4

# What each type of Spark's is called in PostgreSQL, and in Arrow. Every column is cast,
# so that a driver never guesses: a batch of another type is refused by Spark.
TYPES = {
    "smallint": ("smallint", "int16"),
    "int": ("integer", "int32"),
    "bigint": ("bigint", "int64"),
    "float": ("real", "float"),
    "double": ("double precision", "double"),
    "boolean": ("boolean", "bool"),
    "string": ("text", "string"),
    "binary": ("bytea", "binary"),
    "date": ("date", "date32[day]"),
    "timestamp": ("timestamptz", "timestamp[us, tz=UTC]"),
    "timestamp_ntz": ("timestamp", "timestamp[us]"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table or a query: its name, and its type in Spark."""

    name: str
    type: str
    # JSON as text, and so a place for secrets.
    is_json: bool = False
    # What is selected under the name, in SQL; None: the column itself.
    expression: str | None = None

    @property
    def sql(self) -> str:
        """How it is selected."""
        return f"{self._cast} AS {quoted(self.name)}"

    @property
    def sql_for_jdbc(self) -> str:
        """How Spark selects it: it has PostgreSQL compare texts, by bytes as itself."""
        order = ' COLLATE "C"' if self.type == "string" else ""
        return f"{self._cast}{order} AS {quoted(self.name)}"

    @property
    def sql_for_arrow(self) -> str:
        """How it is selected for ADBC, which has no type for a numeric: as text."""
        if self.type in TYPES:
            return self.sql
        return f"{self._cast}::text AS {quoted(self.name)}"

    @property
    def _cast(self) -> str:
        # A decimal(10,2) is called so by both.
        kind, _ = TYPES.get(self.type, (self.type, None))
        return f"{self.expression or quoted(self.name)}::{kind}"


@dataclass(frozen=True, slots=True)
class Table:
    """What one value of the option `table` reads."""

    name: str
    relation: str
    columns: tuple[Column, ...]
    # When its rows are written. A row that comes later than the reading began is left
    # out by it; None: by its id, which is drawn when the row is made.
    written_at: str | None
    # Has a partition for each day of written_at, in UTC.
    by_day: bool = False
    # Is read by topic and partition, up to the horizon: spark/log/.
    is_log: bool = False


def _columns(contract: str) -> tuple[Column, ...]:
    """Return the columns of a contract, whose type json is that of a text of JSON."""
    pairs = (column.split() for column in contract.split(","))
    return tuple(
        Column(name, "string" if kind == "json" else kind, is_json=kind == "json")
        for name, kind in pairs
    )


OF_ALL = """
    id bigint, queue string, task string, args json, kwargs json, headers json,
    priority smallint, run_after timestamp, enqueued_at timestamp, expires_at timestamp,
    attempt smallint, max_attempts smallint, crashes smallint, deliveries int,
    dedup_key string, accumulate_key string, lane string, lane_capacity int,
    lane_spacing double, lane_burst int, lane_policy string, errors json, progress json,
    workflow_id bigint, parent_id bigint, message_id bigint, schedule_id bigint
"""

JOBS = Table(
    name="jobs",
    relation="pgqueue_job",
    columns=_columns(f"""{OF_ALL},
        visible_at timestamp, leased_by string, leased_at timestamp,
        lane_due_at timestamp, promotion bigint, runs_alone boolean,
        cancel_requested_at timestamp, queued_key string
    """),
    written_at=None,
)

ARCHIVE = Table(
    name="archive",
    relation="pgqueue_archived_job",
    columns=_columns(f"""{OF_ALL},
        state string, result json, started_at timestamp, finished_at timestamp,
        worker string
    """),
    written_at="finished_at",
    by_day=True,
)

DEAD_LETTERS = Table(
    name="dead_letters",
    relation="pgqueue_dead_letter",
    columns=_columns(f"""{OF_ALL},
        reason string, started_at timestamp, finished_at timestamp, worker string,
        queued_key string
    """),
    written_at="finished_at",
)

# A slice is of one topic, whose row is looked up once for each page. The epoch is the
# subscriptions' own.
LOG_RELATION = """(SELECT m.id, t.name AS topic, m.partition, m.name, m.key, m.payload,
        m.headers, m.published_at, m.topic_id
   FROM pgqueue_message m JOIN pgqueue_topic t ON t.id = m.topic_id) AS log"""

LOG = Table(
    name="log",
    relation=LOG_RELATION,
    columns=_columns("""
        id bigint, topic string, partition smallint, name string, key string,
        payload json, headers json, published_at timestamp
    """),
    written_at="published_at",
    by_day=True,
    is_log=True,
)

TABLES = {table.name: table for table in (JOBS, ARCHIVE, DEAD_LETTERS, LOG)}


def arrow_type(name: str) -> Any:
    """Return the pyarrow.DataType of a type of Spark's, to the letter."""
    if name == "timestamp":
        return arrow.timestamp("us", tz="UTC")
    return arrow.type_for_alias(TYPES[name][1])


def ddl(columns: Sequence[Column]) -> str:
    """Return *columns* as Spark writes a schema: "`id` bigint, `queue` string"."""
    return ", ".join(
        f"`{column.name.replace('`', '``')}` {column.type}" for column in columns
    )


def quoted(name: str) -> str:
    """Return *name* as an identifier of SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
