"""
Run: what a pipeline job's function gets of the queue, of Spark and of its own row.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg

from django_pgqueue.exceptions import PipelineStopped, SparkOptionError
from django_pgqueue.extras import extra
from django_pgqueue.extras import functions as f
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.redaction.names import REDACT_DEFAULT
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.spark import fanout, frames, options
from django_pgqueue.spark.dsn import DsnSource
from django_pgqueue.spark.java import activate
from django_pgqueue.spark.jdbc import snapshot as snapshots
from django_pgqueue.spark.job import PipelineJob
from django_pgqueue.spark.redact import Redaction

CONNECT_SECONDS_MAX = 10

# What a run tells besides its numbers.
NOTES_MAX = 20
NOTE_CHARACTERS_MAX = 1_000

# Return what a declared task says of its jobs, in the words of format("pgqueue"), for
# its name, a queue (None: the task's own) and the names of arguments (None: not known).
# SparkOptionError: it is not declared, or does not take them.
KnownTask = Callable[[str, str | None, Sequence[str] | None], Mapping[str, str]]

# Locks: none.
IDLE = """
SELECT set_config('idle_in_transaction_session_timeout',
                  (%(seconds)s * 1000)::int::text, true)
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What is run, for whom and with what.

    Attributes:
        job: The pipeline job.
        options: As PipelineJob.read_options() returns them.
        dsn: The database that has the run's row and takes the results; writable.
        sessions: Returns a SparkSession, once the job asks for it; its `with` stops it.
        by: Who asks; "": nobody is named.
        queue_job: The queue's job that runs it, if one does.
        read_options: Options of format("pgqueue") for all tables of the queue.
        patterns: Names whose values are hidden, in the run's options and its error.
        known_task: Looks up a task of the project; None: nobody here knows them.
        redaction: What is hidden of rows that a job reads without Spark.
        sign: Returns a hash of a text with the project's key; None: there is none.
    """

    job: PipelineJob
    options: Mapping[str, Any]
    dsn: str = field(repr=False)
    sessions: Callable[[], AbstractContextManager[Any]]
    by: str = ""
    queue_job: int | None = None
    read_options: Mapping[str, str] = field(default_factory=dict)
    patterns: tuple[str, ...] = REDACT_DEFAULT
    known_task: KnownTask | None = None
    redaction: Redaction = field(default_factory=Redaction)
    sign: Callable[[str], str] | None = field(default=None, repr=False)


class Run:
    """
    What a pipeline job's function gets: by it, the job reads, writes and tells.

    Attributes:
        id: Of the run's row.
        started_at: By the database's clock, in UTC.
        options: Those of the job.
        by: Who asks; "": nobody is named.
        dsn: The database that has the run's row; it is shown nowhere.
        rows_in: How many rows were read, as far as the job says: it adds to it.
        rows_out: How many were written; for a job that returns no number at its end.
        turns: A job that goes on until it is stopped adds to it while it has nothing to
            do, once it has done something: so it is told from one that hangs.
        patterns: Names whose values are hidden in what is noted.
        known_task, redaction, sign: As Plan has them.
        notes: What note() was given.
    """

    def __init__(
        self,
        plan: Plan,
        started: pipelines.Started,
        lease_seconds: float = pipelines.LEASE_SECONDS,
        opened: Callable[[Any], None] = lambda session: None,
    ) -> None:
        self.id: int = started.id
        self.started_at: datetime = started.at.astimezone(UTC)
        self.options = plan.options
        self.by = plan.by
        self.dsn = plan.dsn
        # Whether it has asked how tables are to be read.
        self.has_read = False
        self.known_task = plan.known_task
        self.patterns = plan.patterns
        self.redaction = plan.redaction
        self.sign = plan.sign
        self.rows_in = 0
        self.rows_out = 0
        self.turns = 0
        self.notes: list[str] = []
        self._plan = plan
        # Called with the session as soon as there is one.
        self._opened = opened
        self._open_session: Any = None
        self._opening = threading.RLock()
        self._closing = ExitStack()
        self._lease_seconds = lease_seconds
        self._stop = threading.Event()
        # The same, but for what is done as a whole.
        self._stop_after = threading.Event()
        self._is_whole = False
        # What is read by these is given up when the run is to stop.
        self._readers: set[psycopg.Connection[Any]] = set()
        # Whether a transaction of its own holds its row now.
        self.is_held = False

    @property
    def read_options(self) -> Mapping[str, str]:
        """Options of format("pgqueue"), for all tables of the queue."""
        self.has_read = True
        return self._plan.read_options

    @property
    def session(self) -> Any:
        """
        The SparkSession, which begins when it is asked for.

        Raises:
            SparkError: Spark cannot be started.
        """
        with self._opening:
            if self._open_session is None:
                self.check()
                session = self._closing.enter_context(self._plan.sessions())
                activate(session)
                self._open_session = session
                self._opened(session)
                self.check()
            return self._open_session

    def read(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: Any = None,
        partitions: int | None = None,
        snapshot: snapshots.Snapshot | None = None,
    ) -> Any:
        """
        Return the rows of a table of the queue as a DataFrame, without their secrets.

        How fast they are read and from which server, the run was told.

        Args:
            table: "jobs", "archive", "dead_letters" or "log".
            columns: Those that are fetched, in this order; None: all.
            where: A condition, as DataFrame.where() takes it; None: all rows.
            partitions: Tasks of Spark, at most; None: by the size of the table.
            snapshot: What snapshot() holds; None: each task sees the moment at which it
                begins.

        Raises:
            SparkOptionError: There is no such table or column, or a snapshot cannot be
                read at the run's pace.
            SparkError: The snapshot has ended, or there is no JDBC driver for it.
        """
        given = {**frames.options_of(table, columns, partitions), **self.read_options}
        options.parse(given, streams=False)
        if snapshot is not None:
            self._unpaced("A snapshot")
        return frames.table_frame(self.session, given, where, snapshot)

    def snapshot(self) -> AbstractContextManager[snapshots.Snapshot]:
        """
        Hold one state of the database until the end of the `with`, for several reads.

        DataFrames are read when they are used, so use them inside. Vacuum waits
        meanwhile.

        Raises:
            SparkOptionError: The run has a pace, which a snapshot does not keep.
            SparkError: The database cannot be reached.
        """
        dsn = self._unpaced("A snapshot")
        return snapshots.snapshot(self.session, dsn)

    def query(
        self,
        sql: str,
        *,
        divide_by: str | None = None,
        partitions: int | None = None,
        snapshot: snapshots.Snapshot | None = None,
    ) -> Any:
        """
        Return the rows of an SQL query on the project's database as a DataFrame.

        From which server, the run was told.

        Args:
            sql: One SELECT; its columns say what there is.
            divide_by: A column of whole numbers, best a primary key, by whose ranges
                tasks read it; None: one task.
            partitions: Tasks, at most; None: by the rows that PostgreSQL expects.
            snapshot: As of read().

        Raises:
            SparkOptionError: It is no query, or cannot be read at the run's pace.
            SparkError: PostgreSQL does not take it; or as of read().
        """
        sql = frames.check_query(sql, partitions)
        dsn = self._unpaced("A query")
        return frames.query(
            self.session,
            sql,
            divide_by=divide_by,
            partitions=partitions,
            snapshot=snapshot,
            dsn=dsn,
        )

    def read_dsn(self) -> str:
        """
        Return the database that tables are read from, as Spark's session finds it.

        Raises:
            SparkError: It is not known in this process.
        """
        source = options.parse(self.read_options).dsn
        if source == DsnSource():
            return os.environ.get(source.variable, "").strip() or self.dsn
        return source.read(os.environ)

    def _unpaced(self, what: str) -> DsnSource:
        """Return where *what* is read, unless the run has a pace."""
        asked = options.parse(self.read_options)
        if asked.rows_per_second_max is not None:
            raise SparkOptionError(
                f"{what} is read as fast as it goes, so maxRowsPerSecond cannot be "
                f"kept: run the job without --max-rows-per-second."
            )
        return asked.dsn

    def enqueue(
        self,
        frame: Any,
        task: str | None = None,
        *,
        name: str | None = None,
        key: str | None = None,
        over: str | None = None,
        start: datetime | str | None = None,
        repeated: str = fanout.REFUSE,
        **options: str | None,
    ) -> int:
        """
        Store a job for each row, all of them or none; return how many.

        Columns are arguments of the task, or place the job, as for format("pgqueue").
        Queue, priority, attempts and tags are the task's own, where the run knows the
        project's tasks. What was written is told by note().

        Args:
            frame: A DataFrame.
            task: The name of the task; None: a column has it.
            name: Of this write, which is written once: a run that finds it written
                already writes nothing and says so. None: each run writes.
            key: The columns that make a row what it is, with commas between.
            over: A window such as "24h": each row is due at a moment of it that follows
                from task and key. None: all are due at the start.
            start: Of the window; a moment with its offset. None: when it is written.
            repeated: Rows of one key: "refuse", or "keep" for a job for each.
            options: Further ones of format("pgqueue"), such as queue="mail"; None: not
                given.

        Raises:
            SparkOptionError: An argument or a column cannot be, the task is not
                declared, or a key is NULL or in several rows.
            SparkError: A row was refused, or the window is over.
        """
        said = fanout.asked(
            self,
            task,
            name=name,
            key=key,
            over=over,
            start=start,
            repeated=repeated,
            **options,
        )
        return fanout.write(self, frame, said)

    def check(self) -> None:
        """
        Go on, unless the run was told to stop or has lost its row.

        Raises:
            PipelineStopped: It was.
        """
        if self._stop.is_set() or (self._stop_after.is_set() and not self._is_whole):
            raise PipelineStopped("The run was told to stop.")

    @contextmanager
    def whole(self) -> Iterator[None]:
        """
        Do something as a whole, also if the run is told to stop meanwhile.

        For STOP_SECONDS_MAX of running.py from then; after that, or when the run has
        lost its row, check() fails here as it does elsewhere. One at a time.

        Raises:
            PipelineStopped: The run was told to stop before.
        """
        self.check()
        self._is_whole = True
        try:
            yield
        finally:
            self._is_whole = False

    def note(self, text: str) -> None:
        """Tell *text* with the result of the run; up to NOTES_MAX are kept."""
        if len(self.notes) < NOTES_MAX:
            shown = redact_text(text.replace("\x00", "\\x00"), self.patterns)
            self.notes.append(shown[:NOTE_CHARACTERS_MAX])

    def stop(self, *, is_patient: bool = False) -> Any:
        """
        Let check() and what is read fail; return the session, if it was opened.

        Args:
            is_patient: What is being done as a whole may end. None is returned then.
        """
        self._stop_after.set()
        if is_patient and self._is_whole:
            return None
        self._stop.set()
        for connection in list(self._readers):
            with suppress(psycopg.Error):
                connection.cancel()
        return self._open_session

    def close(self) -> None:
        """Give the session back, if it was opened."""
        self._closing.close()

    @contextmanager
    def transaction(self, *, is_brief: bool = False) -> Iterator[Any]:
        """
        Lend a cursor of psycopg, in a transaction that only a live run commits.

        Args:
            is_brief: It has nothing but statements. Then the server ends it when it
                was idle for a lease: a process that is frozen within keeps nobody out.

        Raises:
            PipelineStopped: The run was told to stop, or another took its place.
        """
        self.check()
        with connect(self.dsn) as connection, connection.transaction():
            cursor = connection.cursor()
            cursor.execute("SET LOCAL timezone = 'UTC'")
            if is_brief:
                cursor.execute(IDLE, {"seconds": max(self._lease_seconds, 1)})
            held = pipelines.hold(
                cursor,
                self.id,
                is_whole=self._is_whole,
                lease_seconds=self._lease_seconds,
            )
            if not held:
                raise PipelineStopped(
                    "The run was told to stop, or another took its place."
                )
            self.is_held = True
            try:
                yield cursor
            finally:
                self.is_held = False

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Lend a cursor of psycopg that holds nothing, for what takes long to read."""
        self.check()
        with connect(self.dsn) as connection:
            cursor = connection.cursor()
            cursor.execute("SET timezone = 'UTC'")
            self._readers.add(connection)
            try:
                yield cursor
            finally:
                self._readers.discard(connection)

    def counted(self, frame: Any) -> tuple[Any, Callable[[], int]]:
        """Return *frame*, and what tells its rows once it was written."""
        sql = extra("pyspark.sql")
        observation = sql.Observation()
        rows = f.count(f.lit(1))
        return frame.observe(observation, rows.alias("rows")), (
            lambda: int(observation.get["rows"])
        )


def connect(dsn: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Open a connection of our own, in autocommit; a `with` closes it."""
    return psycopg.connect(
        dsn,
        autocommit=True,
        connect_timeout=CONNECT_SECONDS_MAX,
        application_name="pgqueue pipeline",
        prepare_threshold=None,
    )
