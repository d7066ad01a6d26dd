"""
Journal: the row of pgqueue_spark_write that says what is to become of a write.

    open         its tasks are writing; all of it can be thrown away
    committed    its rows are jobs
    rolled_back  there are none of it

Who decides changes the state of an open row, which only one can do; so a reaper that
takes a slow write for a dead one makes it fail, and never makes half of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from psycopg import sql

from django_pgqueue.exceptions import SparkError
from django_pgqueue.log.replay import HEADER
from django_pgqueue.postgres.cursor import one_row
from django_pgqueue.spark.write.session import Connection

OPEN, COMMITTED, ROLLED_BACK = "open", "committed", "rolled_back"

# Different reasons that a result tells apart; the others are counted together.
REASONS_MAX = 20
OTHER_REASONS = "other reasons"

# Refused rows that an error tells about.
SAMPLES_MAX = 5

# Locks: its own row. A second task of the same write waits here until the first one
# has made the row and the stage; without a target, since the name is unique as well.
OPEN_WRITE = """
INSERT INTO pgqueue_spark_write (id, name, stage_schema, stage_table, refused_path)
VALUES (%(id)s, %(name)s, %(schema)s, %(table)s, %(refused_path)s)
ON CONFLICT DO NOTHING
"""

# Locks: none.
STATE = "SELECT state FROM pgqueue_spark_write WHERE id = %(id)s"

# Locks: the row. Who finds it in another state changes nothing.
DECIDE = """
UPDATE pgqueue_spark_write
   SET state = 'committed', ended_at = clock_timestamp(), queues = %(queues)s::jsonb,
       written = %(written)s, skipped = %(skipped)s, refused = %(refused)s,
       reasons = %(reasons)s::jsonb, refused_files = %(files)s::jsonb
 WHERE id = %(id)s AND state = 'open'
"""
ROLL_BACK = """
UPDATE pgqueue_spark_write
   SET state = 'rolled_back', ended_at = clock_timestamp()
 WHERE id = %(id)s AND state = 'open'
"""
TOUCH = """
UPDATE pgqueue_spark_write SET touched_at = clock_timestamp() WHERE id = %(id)s
"""
NO_STAGE = """
UPDATE pgqueue_spark_write SET stage_schema = NULL, stage_table = NULL
 WHERE id = %(id)s
"""
NO_FILES = """
UPDATE pgqueue_spark_write SET refused_path = NULL, refused_files = '[]'
 WHERE id = %(id)s
"""

SCHEMA = """
SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = 'pgqueue_job'::regclass
"""


@dataclass(frozen=True, slots=True)
class Write:
    """One write, as it travels to the executors."""

    id: UUID
    name: str | None
    stage_schema: str
    refused_path: str | None
    # Columns of the stage, besides the attempt.
    stage_columns: tuple[str, ...] = ()

    @property
    def stage_table(self) -> str:
        """What its stage is called."""
        return f"pgqueue_stage_{self.id.hex}"

    @property
    def stage(self) -> sql.Composable:
        """Its stage, as a name in SQL."""
        return sql.Identifier(self.stage_schema, self.stage_table)

    def __str__(self) -> str:
        """Tell its name, or its id."""
        return f"Write {self.name!r}" if self.name else f"Write {self.id}"


@dataclass(slots=True)
class Outcome:
    """What all attempts of a write that count have reported, together."""

    rows: int = 0
    refused: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)
    # What is notified besides the queues.
    hints: set[str] = field(default_factory=set)
    files: list[str] = field(default_factory=list)
    # By attempt: how many rows it has written.
    by_attempt: dict[int, int] = field(default_factory=dict)
    # The first refused rows, in words.
    samples: list[str] = field(default_factory=list)

    def staged(self, attempt: int, rows: int) -> None:
        """Count rows that an attempt has written."""
        self.rows += rows
        self.by_attempt[attempt] = self.by_attempt.get(attempt, 0) + rows

    def refuse(self, reasons: Mapping[int, str], first: int, partition: int) -> None:
        """Count refused rows, by their places after the row *first* of a partition."""
        self.refused += len(reasons)
        for place, reason in sorted(reasons.items()):
            count_reason(self.reasons, reason)
            if len(self.samples) < SAMPLES_MAX:
                row = first + place
                self.samples.append(f"Row {row:,} of partition {partition}: {reason}")

    def add(self, other: Outcome) -> None:
        """Add what another attempt has reported."""
        for attempt, rows in other.by_attempt.items():
            self.staged(attempt, rows)
        self.refused += other.refused
        self.queues |= other.queues
        self.files += other.files
        self.samples += other.samples
        for reason, rows in other.reasons.items():
            count_reason(self.reasons, reason, rows)


def marks(write: Write) -> str:
    """Return the headers of what a write brings back, as JSON."""
    return json.dumps({HEADER: write.name or str(write.id)})


def count_reason(reasons: dict[str, int], reason: str, rows: int = 1) -> None:
    """Add to *reasons*, which stays short."""
    if reason not in reasons and len(reasons) >= REASONS_MAX:
        reason = OTHER_REASONS
    reasons[reason] = reasons.get(reason, 0) + rows


def schema_of_jobs(connection: Connection) -> str:
    """Return the schema of pgqueue_job."""
    return str(one_row(connection.execute(SCHEMA))[0])


def check_name(connection: Connection, write: Write) -> None:
    """Raise SparkError if another write has the name of *write*."""
    found = None if write.name is None else look_up(connection, write.name)
    if found is not None:
        raise SparkError(
            f"{write} was committed already; it began at "
            f"{found.started_at.isoformat(timespec='seconds')}. Nothing was written "
            f"again."
        )


def look_up(connection: Connection, name: str) -> WriteResult | None:
    """
    Return the write of a name that is committed; None: the name is free.

    Raises:
        SparkError: One is under way.
    """
    found = read_by_name(connection, name)
    if found is not None and found.state == OPEN:
        raise SparkError(
            f"Write {name!r} is open since "
            f"{found.started_at.isoformat(timespec='seconds')}. If its driver is dead, "
            f"roll it back: python -m django_pgqueue.spark.write.reap --name NAME."
        )
    return found if found is not None and found.state == COMMITTED else None


def begin(connection: Connection, write: Write) -> bool:
    """
    Make the row of *write* unless there is one; return whether it was made.

    Raises:
        SparkError: The write has ended, or another has its name.
    """
    made = connection.execute(
        OPEN_WRITE,
        {
            "id": write.id,
            "name": write.name,
            "schema": write.stage_schema,
            "table": write.stage_table,
            "refused_path": write.refused_path,
        },
    ).rowcount
    state = state_of(connection, write.id)
    if state is None:
        check_name(connection, write)
    if state != OPEN:
        raise SparkError(f"{write} is {state}: this task comes too late.")
    return made == 1


def state_of(connection: Connection, write_id: UUID) -> str | None:
    """Return the state of a write; None: no task of it has begun."""
    row = connection.execute(STATE, {"id": write_id}).fetchone()
    return row[0] if row else None


def lock(connection: Connection, write: Write) -> WriteResult:
    """Lock the row of *write* until the transaction ends; return what it says."""
    row = connection.execute(LOCK, {"id": write.id}).fetchone()
    if row is None:
        raise SparkError(f"{write} is not in the journal any more.")
    return WriteResult(*row)


def decide(
    connection: Connection,
    write: Write,
    outcome: Outcome,
    *,
    skipped: int,
) -> None:
    """
    Write down that an open write is committed, in the caller's transaction.

    Raises:
        SparkError: It is not open any more.
    """
    changed = connection.execute(
        DECIDE,
        {
            "id": write.id,
            "queues": json.dumps(sorted(outcome.queues)),
            "written": outcome.rows - skipped,
            "skipped": skipped,
            "refused": outcome.refused,
            "reasons": json.dumps(outcome.reasons),
            "files": json.dumps(outcome.files),
        },
    ).rowcount
    if changed != 1:
        found = state_of(connection, write.id)
        raise SparkError(
            f"{write} is {found}: it was taken for dead, or rolled back by hand, and "
            f"nothing of it was written."
        )


def touch(connection: Connection, write: Write) -> None:
    """Note that a task of *write* is alive."""
    connection.execute(TOUCH, {"id": write.id})


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What became of a write."""

    id: UUID
    name: str | None
    # open, committed or rolled_back.
    state: str
    started_at: datetime
    ended_at: datetime | None
    # Rows; None until it is decided.
    written: int | None = 0
    # Their dedup key was taken.
    skipped: int | None = 0
    refused: int | None = 0
    # Rows by the reason for which they were refused.
    reasons: Mapping[str, int] = field(default_factory=dict)
    queues: Sequence[str] = ()


RESULT = """
SELECT id, name, state, started_at, ended_at, written, skipped, refused, reasons, queues
  FROM pgqueue_spark_write
"""
# Locks: the row, until the transaction that decides ends.
LOCK = f"{RESULT} WHERE id = %(id)s FOR UPDATE"
# Locks: none. What has the name, and else who had it last.
RESULT_BY_NAME = f"""
{RESULT} WHERE name = %(name)s
 ORDER BY state = 'rolled_back', started_at DESC LIMIT 1
"""


def read_by_name(connection: Connection, name: str) -> WriteResult | None:
    """Return what became of the latest write of a name; None: there is none."""
    row = connection.execute(RESULT_BY_NAME, {"name": name}).fetchone()
    return WriteResult(*row) if row else None
