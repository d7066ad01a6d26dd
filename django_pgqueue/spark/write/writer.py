"""
Writer: what Spark calls to write a DataFrame, on the executors and on the driver.

It is made on the driver when the write is planned, pickled to every task, and pickled
back to a process of the driver that commits. So it holds plain values alone, and what
is common to all of them is in the journal.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from django_pgqueue.exceptions import SparkError, SparkOptionError, TopicError
from django_pgqueue.log import receivers
from django_pgqueue.log.names import topic_of
from django_pgqueue.spark.export.store import Store
from django_pgqueue.spark.write import aside, journal, staged
from django_pgqueue.spark.write.columns import Columns, arrow_schema, plan
from django_pgqueue.spark.write.journal import Outcome, Write, count_reason
from django_pgqueue.spark.write.move import Handing, Publishing
from django_pgqueue.spark.write.options import WriteOptions, parse
from django_pgqueue.spark.write.reap import clear, reap_with, wake_workers
from django_pgqueue.spark.write.rows import Checked, Rows
from django_pgqueue.spark.write.session import ConnectionLost, session
from django_pgqueue.spark.write.staged import Jobs, Move

logger = logging.getLogger("django_pgqueue.spark")

# Refused rows that an error tells about.
SAMPLES_MAX = 5

# A commit whose connection broke is tried again, for as long as a server needs to
# restart or a standby to take over.
COMMIT_TRIES = 10
COMMIT_PAUSE_SECONDS = 3.0


class Report(WriterCommitMessage):
    """What one attempt of a task has done."""

    def __init__(self) -> None:
        self.outcome = Outcome()


class PgQueueWriter(DataSourceArrowWriter):
    """Makes jobs of the rows of one DataFrame: all, or none."""

    def __init__(
        self,
        options: WriteOptions,
        columns: Columns,
        schema_of_jobs: str,
        receiver: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = options
        self._columns = columns
        rows = Rows(columns, options)
        self._move = _move_of(rows, options, receiver)
        self._has_lanes = "lane" in {*rows.varying, *rows.constants}
        self._write = Write(
            id=uuid4(),
            name=options.name,
            stage_schema=options.stage_schema or schema_of_jobs,
            refused_path=options.refused_path,
            stage_columns=rows.varying,
        )

    def write(self, iterator: Iterator[Any]) -> Report:
        """Write the rows of one task, and report them."""
        context = TaskContext.get()
        assert context is not None
        attempt, partition = context.taskAttemptId(), context.partitionId()
        report = Report()
        for batch in iterator:
            if batch.num_rows == 0:
                continue
            with session(self._options.dsn.read()) as connection:
                task = _Task(self, connection, report.outcome, attempt, partition)
                task.take(batch)
                # In fail mode, one refused row decides the write.
                for more in iterator if task.may_go_on else ():
                    task.take(more)
                    if not task.may_go_on:
                        break
                task.end()
            break
        return report

    def commit(self, messages: Sequence[Any]) -> None:
        """
        Make jobs of what the tasks have written.

        Raises:
            SparkError: Rows were refused or are missing; nothing is written.
        """
        outcome = Outcome()
        for report in messages:
            outcome.add(report.outcome)
        write = self._write
        if outcome.refused and write.refused_path is None:
            raise SparkError(
                f"{write}: at least {outcome.refused:,} rows were refused, so nothing "
                f"was written. {' | '.join(outcome.samples[:SAMPLES_MAX])}. To write "
                f"the others and keep these in files, give the option refusedPath."
            )
        for tried in range(1, COMMIT_TRIES + 1):
            try:
                self._commit(outcome)
                return
            except ConnectionLost:
                # Whether it was committed is in the journal: a second try finds out.
                if tried == COMMIT_TRIES:
                    raise
                logger.warning("commit lost its connection write=%s", write.id)
                time.sleep(COMMIT_PAUSE_SECONDS)

    def abort(self, messages: Sequence[Any]) -> None:
        """Throw away what the tasks have written; what is decided stays."""
        write = self._write
        try:
            with session(self._options.dsn.read()) as connection:
                connection.execute(journal.ROLL_BACK, {"id": write.id})
                if journal.state_of(connection, write.id) == journal.ROLLED_BACK:
                    self._clear(connection, ())
        except SparkError as error:
            # Spark tells why the write failed; the next write does the rest.
            logger.warning("abort failed write=%s error=%s", write.id, error)

    def _commit(self, outcome: Outcome) -> None:
        write = self._write
        with session(self._options.dsn.read()) as connection:
            skipped = 0
            if outcome.by_attempt or outcome.refused or write.name:
                staged.begin_again(connection, write)
                skipped = staged.commit(connection, write, outcome, self._move)
                wake_workers(
                    connection,
                    sorted(outcome.queues | outcome.hints),
                    write.id,
                    has_lanes=self._has_lanes,
                )
                self._clear(connection, outcome.files)
        logger.log(
            logging.WARNING if outcome.refused else logging.INFO,
            "jobs written write=%s name=%s written=%s skipped=%s refused=%s",
            write.id,
            write.name,
            outcome.rows - skipped,
            skipped,
            outcome.refused,
        )

    def _clear(self, connection: Any, files: Sequence[str]) -> None:
        write = self._write
        problems = clear(
            connection,
            write.id,
            write.stage_schema,
            write.stage_table,
            write.refused_path,
            files,
        )
        if problems:
            logger.warning("left behind write=%s %s", write.id, "; ".join(problems))


class _Task:
    """One attempt of one task."""

    def __init__(
        self,
        writer: PgQueueWriter,
        connection: Any,
        outcome: Outcome,
        attempt: int,
        partition: int,
    ) -> None:
        options, write = writer._options, writer._write
        self._connection = connection
        self._outcome = outcome
        self._attempt = attempt
        self._partition = partition
        self._seen = 0
        staged.begin(connection, write)
        self._stager = staged.Stager(connection, write, attempt)
        self._rows = Rows(writer._columns, options, lead=self._stager.lead)
        self._aside: aside.Aside | None = None
        if write.refused_path is not None:
            self._aside = aside.Aside(write.refused_path, write.id, partition, attempt)

    @property
    def may_go_on(self) -> bool:
        """Whether further rows can change what becomes of the write."""
        return self._outcome.refused == 0 or self._aside is not None

    def take(self, batch: Any) -> None:
        """Write the rows of a pyarrow.RecordBatch."""
        for checked in self._rows.check(batch):
            if checked.refused is not None:
                self._refuse(checked)
            if checked.rows and self.may_go_on:
                self._stager.add(checked.text)
                self._outcome.staged(self._attempt, checked.rows)
                self._outcome.queues |= checked.queues
        self._seen += batch.num_rows

    def end(self) -> None:
        """Make what was written one that can be committed."""
        if self._aside is not None:
            self._outcome.files += self._aside.close()
        if not self.may_go_on:
            return
        self._stager.flush()

    def _refuse(self, checked: Checked) -> None:
        outcome = self._outcome
        outcome.refused += len(checked.reasons)
        for place, reason in sorted(checked.reasons.items()):
            count_reason(outcome.reasons, reason)
            if len(outcome.samples) < SAMPLES_MAX:
                row = self._seen + place + 1
                outcome.samples.append(
                    f"Row {row:,} of partition {self._partition}: {reason}"
                )
        if self._aside is not None:
            self._aside.add(checked.refused)


def make_writer(given: Any, schema: Any, overwrite: bool) -> PgQueueWriter:
    """
    Check all that can be known before the first row, and return the writer.

    Raises:
        SparkOptionError: The options and the columns do not make jobs.
        SparkError: The database cannot be reached, lacks a migration, or cannot do
            what was asked for.
    """
    if overwrite:
        raise SparkOptionError(
            'Jobs are added, and never overwritten: write with .mode("append").'
        )
    options = parse(given)
    columns = plan(arrow_schema(schema), options)
    with session(options.dsn.read()) as connection:
        journal.check_schema(connection)
        # First: what a dead driver has left may have the name.
        try:
            reap_with(connection)
        except Exception as error:
            logger.warning("reaping failed error=%r", error)
        if options.refused_path is not None:
            Store(options.refused_path)
        writer = PgQueueWriter(
            options,
            columns,
            journal.schema_of_jobs(connection),
            _receiver_of(connection, options),
        )
        journal.check_name(connection, writer._write)
    return writer


def _move_of(
    rows: Rows, options: WriteOptions, receiver: Mapping[str, Any] | None
) -> Move:
    """Return what becomes of the rows of the stage."""
    if not options.is_messages:
        return Jobs(rows.constants, options.per_second, options.is_encoded)
    topic = topic_of(options.constants["name"])
    if receiver is not None:
        return Handing(topic, receiver, options.per_second, options.backfill)
    return Publishing(topic, rows.constants, options.per_second, options.is_encoded)


def _receiver_of(connection: Any, options: WriteOptions) -> Mapping[str, Any] | None:
    """Return who alone gets the messages, as a replay has it; None: nobody is named."""
    if options.receiver is None:
        return None
    topic = topic_of(options.constants["name"])
    try:
        _, found = receivers.find(connection.cursor(), topic, options.receiver)
    except TopicError as error:
        raise SparkOptionError(f"The option receiver: {error}") from None
    return found
