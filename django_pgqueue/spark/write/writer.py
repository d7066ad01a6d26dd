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
from itertools import chain
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from django_pgqueue.exceptions import SparkError, SparkOptionError, TopicError
from django_pgqueue.log import receivers
from django_pgqueue.log.names import topic_of
from django_pgqueue.spark.store import Store
from django_pgqueue.spark.write import journal, staged
from django_pgqueue.spark.write.journal import SAMPLES_MAX, Outcome, Write
from django_pgqueue.spark.write.options import WriteOptions, parse
from django_pgqueue.spark.write.parts import Columns, arrow_schema, plan
from django_pgqueue.spark.write.reap import clear, reap_with, wake_workers
from django_pgqueue.spark.write.rows import Rows
from django_pgqueue.spark.write.session import Connection, ConnectionLost, session
from django_pgqueue.spark.write.staged import Handing, Jobs, Move, Publishing

logger = logging.getLogger("django_pgqueue.spark")

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
        report = Report()
        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is not None:
            with session(self._options.dsn.read()) as connection:
                self._stage(connection, chain([first], batches), report.outcome)
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
                self._clear(connection)
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
                self._clear(connection)
        logger.log(
            logging.WARNING if outcome.refused else logging.INFO,
            "jobs written write=%s name=%s written=%s skipped=%s refused=%s",
            write.id,
            write.name,
            outcome.rows - skipped,
            skipped,
            outcome.refused,
        )

    def _stage(
        self, connection: Connection, batches: Iterator[Any], outcome: Outcome
    ) -> None:
        """Write rows into the stage, and those that are refused aside."""
        context = TaskContext.get()
        assert context is not None
        attempt, partition = context.taskAttemptId(), context.partitionId()
        write, seen = self._write, 0
        staged.begin(connection, write)
        lead = staged.lead_of(write, attempt)
        rows = Rows(self._columns, self._options, lead=lead)
        refused: staged.Aside | None = None
        if write.refused_path is not None:
            refused = staged.Aside(write.refused_path, write.id, partition, attempt)
        for batch in batches:
            for checked in rows.check(batch):
                outcome.refuse(checked.reasons, seen + 1, partition)
                if checked.refused is not None:
                    if refused is None:
                        # It decides the write: what follows changes nothing.
                        return
                    refused.add(checked.refused)
                if checked.rows:
                    staged.store(connection, write, checked.text)
                    outcome.staged(attempt, checked.rows)
                    outcome.queues |= checked.queues
            seen += batch.num_rows
        if refused is not None:
            outcome.files += refused.close()

    def _clear(self, connection: Connection) -> None:
        problems = clear(connection, self._write.id)
        if problems:
            told = "; ".join(problems)
            logger.warning("left behind write=%s %s", self._write.id, told)


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
