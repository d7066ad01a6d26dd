"""
Places: where the rows of pipeline jobs come from and go to.

Besides these, anything with a read(run) is a source, and anything with a
write(run, frame) is a sink. One that has a check(plan) is asked before Spark starts,
and one with templates names the options that stand in its texts. A sink whose options
choose where it writes has destinations(options), and one that keeps rows where the
admin's permissions guard them says takes_out = False.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any
from uuid import uuid4

from django_pgqueue.exceptions import (
    DeclarationError,
    SparkOptionError,
    did_you_mean,
)
from django_pgqueue.spark import fanout, options, query
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.destinations import chosen
from django_pgqueue.spark.fanout import FanOut
from django_pgqueue.spark.tables import TABLES
from django_pgqueue.spark.templates import fill, require
from django_pgqueue.spark.write import once
from django_pgqueue.spark.write.columns import Columns
from django_pgqueue.spark.write.journal import WriteResult
from django_pgqueue.spark.write.options import KNOWN, parse

MODES = ("overwrite", "append")

# Options of a write that a declared task has, and the columns that say it for a row.
OF_TASK = {"queue": "queue", "priority": "priority", "maxAttempts": "max_attempts"}


@dataclass(frozen=True, slots=True)
class QueueTable:
    """
    A source: a table of the queue, read by format("pgqueue").

    Attributes:
        table: "jobs", "archive", "dead_letters" or "log".
        columns: Those that are fetched; None: all.
        options: Further options of the data source.
    """

    table: str
    columns: Sequence[str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise DeclarationError for a table or a column that there is not."""
        try:
            asked = options.parse({**self.options, "table": self.table})
            if self.columns is not None:
                options.select(list(self.columns), asked.table)
        except SparkOptionError as error:
            raise DeclarationError(f"QueueTable: {error}") from None

    def read(self, run: Any) -> Any:
        """Return its rows; how fast and from which server, the run says."""
        reader = run.session.read.format("pgqueue").option("table", self.table)
        known = {column.name: column for column in TABLES[self.table].columns}
        if self.columns is not None:
            reader = reader.schema(
                ", ".join(f"{name} {known[name].type}" for name in self.columns)
            )
        return reader.options(**{**self.options, **run.read_options}).load()


@dataclass(frozen=True, slots=True)
class Query:
    """
    A source: the rows of an SQL query on the project's database.

    Attributes:
        sql: One SELECT; its columns say what the job gets. It is no template: rows
            that an option decides about are left out by the job.
        divide_by: A column of whole numbers, best a primary key, by whose ranges the
            query is read in short statements; None: in one, by one task.
        partitions: Tasks, at most; None: by the rows that PostgreSQL expects.
    """

    sql: str
    divide_by: str | None = None
    partitions: int | None = None

    def __post_init__(self) -> None:
        """Raise DeclarationError for what cannot be a query."""
        try:
            options.parse(self._options({}))
        except SparkOptionError as error:
            raise DeclarationError(f"Query: {error}") from None

    def check(self, plan: Any) -> None:
        """Raise SparkOptionError where the run asks for what the query cannot do."""
        options.parse(self._options(plan.read_options))

    def read(self, run: Any) -> Any:
        """Return its rows; how fast and from which server, the run says."""
        given = self._options(run.read_options)
        asked = options.parse(given)
        assert asked.query is not None
        # Here, and not by the data source: an error of PostgreSQL's stays a short one.
        dsn = once.find_dsn(run.session, asked.dsn)
        with Session(dsn, table=None) as session:
            columns = query.describe(session, asked.query)
        reader = run.session.read.format("pgqueue").schema(query.ddl(columns))
        return reader.options(**given).load()

    def _options(self, of_run: Mapping[str, str]) -> dict[str, str]:
        given = {"query": self.sql}
        if self.divide_by is not None:
            given["divideBy"] = self.divide_by
        if self.partitions is not None:
            given["partitions"] = str(self.partitions)
        return {**given, **of_run}


@dataclass(frozen=True, slots=True)
class Files:
    """
    A source or a sink: files in a format of Spark's.

    Attributes:
        format: "parquet", "json", "csv", "orc" …
        path: A folder. Options of the job stand in it by their names: "{folder}/late".
        mode: Of a sink. "overwrite" replaces what is there, so that a run can be
            repeated; "append" adds to it, and a run that failed and is run again may
            have added twice.
        partition_by: Of a sink: columns that become folders.
        options: Those of the format.
        schema: Of a source: "id bigint, name string"; None: as the format says it.
    """

    format: str
    path: str
    mode: str = "overwrite"
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None

    def __post_init__(self) -> None:
        """Raise DeclarationError for a mode that there is not."""
        if self.mode not in MODES:
            raise DeclarationError(
                f"Files: the mode is {self.mode!r}.{did_you_mean(self.mode, [*MODES])} "
                f"It must be one of {', '.join(MODES)}."
            )

    @property
    def templates(self) -> tuple[str, ...]:
        """Where options of the job stand."""
        return (self.path,)

    def destinations(self, given: Mapping[str, Any]) -> list[str]:
        """Return where options of the job let it write, if they choose the place."""
        return chosen(self.path, given)

    def read(self, run: Any) -> Any:
        """Return the rows of the files."""
        reader = run.session.read.format(self.format).options(**self.options)
        if self.schema is not None:
            reader = reader.schema(self.schema)
        return reader.load(self._path(run))

    def write(self, run: Any, frame: Any) -> int:
        """Write the rows; Spark shows the files when all of them are written."""
        counted, rows = run.counted(frame)
        writer = counted.write.format(self.format).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.mode(self.mode).save(self._path(run))
        return int(rows())

    def check(self, plan: Any) -> None:
        """Raise SparkOptionError where an option of the path is not given."""
        require(self.path, plan.options)

    def _path(self, run: Any) -> str:
        require(self.path, run.options)
        return fill(self.path, run.options, run) or ""


@dataclass(frozen=True, slots=True)
class Jobs:
    """
    A sink: each row becomes a job, all of them or none.

    Columns are arguments of the task, or place the job, as format("pgqueue") takes
    them. Queue, priority, attempts and tags are the task's own, where the run knows the
    project's tasks. Options of the job stand in the texts by their names; a text whose
    option is None is not given, but for task and name, which then are missing.

    Attributes:
        task: The name of the task; None: a column has it.
        name: Of this write: it is written once. A run that finds it written already
            writes nothing and says so: "reminders {run.started_at:%Y-%m-%d}". None:
            each run writes.
        key: The columns that make a row what it is, with commas between.
        over: A window such as "24h": each row is due at a moment of it that follows
            from task and key.
        start: Of the window; a moment with its offset. None: when it is written.
        repeated: Rows of one key: "refuse", or "keep" for a job for each.
        options: Further options of format("pgqueue").
    """

    task: str | None = None
    name: str | None = None
    key: str | None = None
    over: str | None = None
    start: str | None = None
    repeated: str = fanout.REFUSE
    options: Mapping[str, str] = field(default_factory=dict)

    # What it writes is in the queue, where permissions are asked.
    takes_out = False

    def __post_init__(self) -> None:
        """Raise DeclarationError for an option that there is not, or not here."""
        try:
            options.check_names({name.casefold(): "" for name in self.options}, KNOWN)
        except SparkOptionError as error:
            raise DeclarationError(f"Jobs: {error}") from None
        for name in self.options:
            if name not in KNOWN:
                raise DeclarationError(
                    f"Jobs: the option {name!r} is written otherwise."
                    f"{did_you_mean(name, [*KNOWN])}"
                )
            if name in ("task", "name"):
                raise DeclarationError(f"Jobs: write {name}=… instead of an option.")

    @property
    def templates(self) -> tuple[str, ...]:
        """Where options of the job stand."""
        texts = (self.task, self.name, self.key, self.over, self.start, self.repeated)
        return tuple(filter(None, (*texts, *self.options.values())))

    def destinations(self, given: Mapping[str, Any]) -> list[str]:
        """Return where options of the job let it put refused rows."""
        texts = [t for n, t in self.options.items() if n.casefold() == "refusedpath"]
        return [address for text in texts for address in chosen(text, given)]

    def check(self, plan: Any) -> None:
        """Raise SparkOptionError for what cannot be, before Spark starts."""
        for text in (self.task, self.name):
            require(text or "", plan.options)
        fan_out = self._fan_out(plan.options, None, {})
        if plan.known_task is not None and fan_out.task:
            plan.known_task(fan_out.task, fan_out.options.get("queue"), None)

    def write(self, run: Any, frame: Any) -> int:
        """Write the rows, unless the name was written before; return how many jobs."""
        fan_out = self._fan_out(run.options, run, self._of_task(run, frame))
        columns = fanout.check_frame(frame, fan_out)
        if run.known_task is not None and fan_out.task:
            names = _arguments(columns, frame.schema)
            run.known_task(fan_out.task, None, names)
        dsn = once.find_dsn(run.session, parse(fan_out.options).dsn)
        name = fan_out.options["name"]
        # The run's own row says that no other one of this job is alive.
        found = once.look_up(dsn, name, takes_over=True)
        if found.result is not None:
            ended_at = found.result.ended_at
            assert ended_at is not None
            run.note(
                f"{name!r} was written already, at "
                f"{ended_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC: "
                f"{_summary(found.result)}. Nothing was written again."
            )
            return 0
        run.check()
        result = fanout.write(frame, fan_out, dsn, found.now)
        run.note(f"{name!r}: {_summary(result)}.")
        return result.written or 0

    def name_of(self, run: Any) -> str:
        """Return the name of the write of *run*."""
        name = fill(self.name, run.options, run)
        return name or f"run {run.id} {uuid4().hex[:8]}"

    def _fan_out(
        self, given: Mapping[str, Any], run: Any | None, of_task: Mapping[str, str]
    ) -> FanOut:
        texts = {**self.options, "task": self.task}
        asked = dict(of_task)
        for name, template in texts.items():
            text = fill(template, given, run)
            if text is not None:
                # A call adds its tags to those of the task.
                is_more = name == "tags" and name in asked
                asked[name] = f"{asked[name]},{text}" if is_more else text
        if run is not None:
            asked["name"] = self.name_of(run)
        return fanout.make(
            asked,
            key=fill(self.key, given, run),
            over=fill(self.over, given, run),
            start=fill(self.start, given, run),
            repeated=fill(self.repeated, given, run) or fanout.REFUSE,
        )

    def _of_task(self, run: Any, frame: Any) -> dict[str, str]:
        """Return what the task says of its jobs, but for what columns say."""
        task = fill(self.task, run.options, run)
        if run.known_task is None or task is None:
            return {}
        queue = fill(self.options.get("queue"), run.options, run)
        return {
            name: text
            for name, text in run.known_task(task, queue, None).items()
            if OF_TASK.get(name) not in frame.columns
        }


def _arguments(columns: Columns, schema: Any) -> list[str] | None:
    """Return the names of the arguments; None: only the rows know them."""
    if columns.args is not None:
        return None
    if columns.kwargs is None:
        return list(columns.arguments)
    kind = schema[columns.kwargs].dataType
    return list(kind.names) if hasattr(kind, "names") else None


def _summary(result: WriteResult) -> str:
    """Return the numbers of a write in words."""
    parts = [f"{result.written or 0:,} jobs"]
    if result.skipped:
        parts.append(f"{result.skipped:,} rows skipped, whose dedup key is taken")
    if result.refused:
        reasons = "; ".join(
            f"{reason}: {rows:,}" for reason, rows in result.reasons.items()
        )
        parts.append(f"{result.refused:,} rows refused ({reasons})")
    return ", ".join(parts)
