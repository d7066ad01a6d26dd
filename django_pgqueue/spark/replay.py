"""
Replay: what was, once more: messages of a log or of files, or jobs that have ended.

The options are checked before Spark starts. What the database has, it replays itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from psycopg import Rollback, sql

from django_pgqueue.bounds import PER_SECOND_MAX, QUEUE_NAME
from django_pgqueue.exceptions import (
    SparkError,
    SparkOptionError,
    raised_as,
)
from django_pgqueue.extras import functions as f
from django_pgqueue.log import groups, receivers, replay
from django_pgqueue.log.names import check_topic
from django_pgqueue.log.start import EARLIEST, Start
from django_pgqueue.postgres.cursor import one_row
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues import bulk_acts
from django_pgqueue.queues.fair import lane_hints
from django_pgqueue.spark.lake.table import LakeTable, checked_target
from django_pgqueue.spark.option_table import Word
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.store import for_spark
from django_pgqueue.spark.tables import ARCHIVE, LOG, ddl
from django_pgqueue.spark.write import journal, result
from django_pgqueue.spark.write.journal import Outcome, Write, marks
from django_pgqueue.spark.write.parts import OF_LOG
from django_pgqueue.spark.write.result import digest
from django_pgqueue.spark.write.staged import DUE_AT, MARKED, Publishing

TOPIC, QUEUE = "topic:", "queue:"

# What says which jobs, and which messages, are meant.
OF_JOBS = ("task", "queue", "state")
# How a job of the archive ended.
STATE = Word(("succeeded", "expired", "cancelled"))
# What only files have.
OF_FILES = ("where", "refused_path")


@dataclass(frozen=True, slots=True)
class Asked:
    """
    What is brought back, and to whom.

    Attributes:
        source: "log", "archive", or where files are.
        topic: Whose messages; "": it is about jobs.
        to: As "topic:orders", "group:stats"; "": jobs go to their own queues.
        since: An id of a message, or a time.
        until: Likewise; None: all that there is by now.
        where: A condition of Spark; None: any.
        jobs: Which jobs, by column.
        rate: How many are due a second; None: all at once.
        name: It is done once under it.
        refused_path: Where refused rows go; None: one of them fails it all.
        is_preview: It is counted, and nothing is written.
    """

    source: str
    topic: str
    to: str
    since: int | Start
    until: int | Start | None
    where: str | None
    jobs: Mapping[str, str]
    rate: int | None
    name: str
    refused_path: str | None
    is_preview: bool

    @property
    def to_topic(self) -> str | None:
        """The topic that messages are published to; None: they go elsewhere."""
        return self.to.removeprefix(TOPIC) if self.to.startswith(TOPIC) else None


def replay_asked(run: Run) -> int:
    """Replay what the run's options say; return how many messages or jobs."""
    said = asked(run)
    ways = {LOG.name: _replay_log, ARCHIVE.name: _replay_archive}
    return ways.get(said.source, _replay_files)(run, said)


def asked(run: Run) -> Asked:
    """
    Return what the run's options say.

    Raises:
        SparkOptionError: One is missing, cannot be, or says nothing beside another.
    """
    given = run.options
    source = given["source"]
    if not source:
        raise SparkOptionError(
            "What is replayed? Give -o source=log, -o source=archive, or the path or "
            "URI of what ingest or export has written."
        )
    is_file = source not in (LOG.name, ARCHIVE.name)
    topic, to = given["topic"], given["to"]
    if source == LOG.name and not topic:
        raise SparkOptionError("Whose log is replayed? Give -o topic=orders.")
    if source == ARCHIVE.name and topic:
        raise SparkOptionError(
            "The archive has jobs and no messages: give -o task=… or -o queue=…, or "
            "-o source=log with the topic."
        )
    for name in (*OF_JOBS, *OF_FILES):
        is_of_it = not topic if name in OF_JOBS else is_file
        if given[name] is not None and not is_of_it:
            what = "jobs" if name in OF_JOBS else "files"
            raise SparkOptionError(f"The option {name} is for {what}.")
    if given["state"] is not None:
        STATE("state", given["state"])
    if topic and not to:
        raise SparkOptionError(
            "Who gets the messages? Give -o to=topic:orders, "
            "to=subscription:QUEUE/PATTERN, to=group:NAME or to=queue:NAME of a pull "
            "queue."
        )
    if not topic and to and not _is_queue(to):
        raise SparkOptionError(
            f"The option to is {to[:80]!r}: jobs go to their own queues, or to another "
            f"one with -o to=queue:NAME. For files of messages, give -o topic=orders."
        )
    return Asked(
        source=checked_target(source) if is_file else source,
        topic=_topic(topic) if topic else "",
        to=f"{TOPIC}{_topic(to.removeprefix(TOPIC))}" if to.startswith(TOPIC) else to,
        since=_place("since", given["since"], of_jobs=not topic),
        until=None
        if given["until"] is None
        else _place("until", given["until"], of_jobs=not topic),
        where=given["where"],
        jobs={name: given[name] for name in OF_JOBS if given[name] is not None},
        rate=rate_of(given["rate"]),
        name=given["name"] or _name(run),
        refused_path=given["refused_path"],
        is_preview=given["preview"],
    )


def rate_of(given: int) -> int | None:
    """Return how many a second; raise SparkOptionError."""
    if not 0 <= given <= PER_SECOND_MAX:
        raise SparkOptionError(
            f"The option rate is {given:,}; it must be from 1 to {PER_SECOND_MAX:,} a "
            f"second, or 0: as fast as it goes."
        )
    return given or None


def moment_of(said: int | Start, now: datetime) -> datetime | None:
    """Return the moment that *said* is, and no id; None: it is "earliest"."""
    assert isinstance(said, Start)
    if said.ago is not None:
        return now - said.ago
    return None if said.text == EARLIEST else datetime.fromisoformat(said.text)


def _name(run: Run) -> str:
    """Return a name that is the same whenever, on the same day, the same is asked."""
    given = {name: said for name, said in run.options.items() if name != "preview"}
    return f"replay {run.started_at:%Y-%m-%d} {digest(given)}"


def _place(name: str, value: str | None, *, of_jobs: bool) -> int | Start:
    if value is None:
        raise SparkOptionError(
            "Where does it begin? Give -o since=earliest, a time such as "
            "2026-11-22T00:00Z, or '2 days ago'."
        )
    is_id = value.isascii() and value.isdigit()
    if is_id and of_jobs:
        raise SparkOptionError(
            f"The option {name} is {value[:40]!r}: of jobs it is a time, at which they "
            f"ended, and not an id."
        )
    with raised_as(SparkOptionError, "The option "):
        return replay.place(name, int(value) if is_id else value)


def _topic(name: str) -> str:
    with raised_as(SparkOptionError):
        return check_topic(name)


def _is_queue(to: str) -> bool:
    name = to.removeprefix(QUEUE)
    return to.startswith(QUEUE) and QUEUE_NAME.fullmatch(name) is not None


# Named ------------------------------------------------------------------------------
# One transaction has it all, and the row of the journal that says so.

# Puts what is to be there into the transaction, and says what that was.
Work = Callable[[Any, Write, Outcome], None]


def is_written(run: Run, name: str) -> bool:
    """
    Whether a write of that name is committed, which is told by a note.

    Raises:
        SparkError: One is under way.
    """
    found, _ = result.look_up(run.dsn, name, takes_over=True)
    if found is None:
        return False
    run.note(result.told(name, found, f"{found.written or 0:,} rows"))
    return True


def write_named(
    run: Run, name: str, work: Work, *, keeps_empty: bool = False
) -> Outcome:
    """
    Do *work* and note it under *name*, in one transaction that a live run commits.

    Args:
        work: Called with a connection, the write and its outcome; statements alone.
        keeps_empty: Keep what has no rows; else the name stays free.

    Raises:
        SparkError: Another was quicker under that name.
    """
    made = Write(uuid4(), name, "", None)
    outcome = Outcome()
    with run.transaction(is_brief=True) as cursor:
        connection = cursor.connection
        journal.begin(connection, made)
        connection.execute(journal.NO_STAGE, {"id": made.id})
        work(connection, made, outcome)
        if not outcome.rows and not keeps_empty:
            run.note("There was nothing to replay.")
            raise Rollback
        journal.decide(connection, made, outcome, skipped=0)
        wake(cursor, sorted(outcome.queues | outcome.hints))
    return outcome


# From the archive -------------------------------------------------------------------
# What the first life of a job has left in it stays behind: errors, attempts, its dedup
# key, its workflow. A job of a message is left out, since it only refers to that:
# replay the message.

# Lines of a preview; the rest is told together.
LINES_MAX = 15

# By the days of the archive: finished_at chooses its partitions. It ends with what has
# ended when the run began.
MEANT = """
  FROM pgqueue_archived_job a
 WHERE a.finished_at >= %(since)s::timestamptz
   AND a.finished_at < %(until)s::timestamptz
   AND (%(task)s::text IS NULL OR a.task = %(task)s)
   AND (%(queue)s::text IS NULL OR a.queue = %(queue)s)
   AND (%(state)s::text IS NULL OR a.state = %(state)s)
"""
# Locks: none.
COUNT_JOBS = f"""
SELECT a.task, (a.finished_at AT TIME ZONE 'UTC')::date::text, count(*),
       count(a.message_id)
  {MEANT} GROUP BY 1, 2 ORDER BY 1, 2
"""
# Locks: as an enqueue. In the order in which the jobs were enqueued.
REPLAY = f"""
WITH made AS (
INSERT INTO pgqueue_job
       (task, queue, args, kwargs, headers, priority, max_attempts, run_after, lane,
        lane_capacity, lane_spacing, lane_burst, lane_policy)
SELECT a.task, coalesce(%(into)s::text, a.queue), a.args, a.kwargs, {{headers}},
       a.priority, a.max_attempts, {{due_at}}, a.lane, a.lane_capacity, a.lane_spacing,
       a.lane_burst, a.lane_policy
  {MEANT} AND a.message_id IS NULL
 ORDER BY a.id
RETURNING queue, lane, lane_policy)
SELECT queue, count(*), count(lane), count(lane) FILTER (WHERE lane_policy = 'fair')
  FROM made GROUP BY queue
"""


def _replay_archive(run: Run, asked: Asked) -> int:
    """
    Enqueue jobs of the archive again; return how many.

    Raises:
        SparkError: Another run was quicker under that name.
    """
    until = None if asked.until is None else moment_of(asked.until, run.started_at)
    params: dict[str, Any] = {
        "since": moment_of(asked.since, run.started_at) or "-infinity",
        "until": until or run.started_at,
        "into": asked.to.removeprefix(QUEUE) or None,
        "rate": asked.rate,
        **dict.fromkeys(OF_JOBS),
        **asked.jobs,
    }
    if asked.is_preview:
        with run.reading() as cursor:
            cursor.execute(COUNT_JOBS, params)
            tell(run, cursor.fetchall(), "jobs")
        return 0
    if is_written(run, asked.name):
        return 0

    def enqueue(connection: Any, write: Write, outcome: Outcome) -> None:
        statement = sql.SQL(REPLAY).format(
            headers=sql.SQL(MARKED.format(headers="a.headers")),
            due_at=sql.SQL(DUE_AT.format(order="ORDER BY a.id")),
        )
        made = connection.execute(statement, {**params, "marks": marks(write)})
        for queue, jobs, in_lanes, in_turn in made.fetchall():
            outcome.rows += jobs
            outcome.queues.add(queue)
            outcome.hints |= lane_hints(queue, in_lanes, in_turn)

    done = write_named(run, asked.name, enqueue).rows
    run.rows_in += done
    if done:
        run.note(f"archive → {asked.to or 'their queues'}: {done:,} jobs.")
    return done


def tell(run: Run, found: list[Any], what: str) -> None:
    """
    Note what would be replayed.

    Args:
        found: Of each task or name and each day: how many, and how many of them are
            left out, since they are jobs of messages.
        what: "jobs" or "messages".
    """
    total = sum(count for _, _, count, _ in found)
    left_out = sum(others for *_, others in found)
    run.rows_in += total
    for name, day, count, others in found[:LINES_MAX]:
        run.note(f"{name} {day}: {count - others:,}")
    if len(found) > LINES_MAX:
        rest = sum(count - others for _, _, count, others in found[LINES_MAX:])
        run.note(f"{len(found) - LINES_MAX:,} more: {rest:,}")
    if left_out:
        run.note(f"Left out are {left_out:,} jobs of messages: replay those.")
    run.note(f"{total - left_out:,} {what} in all. Nothing was written.")


# From the log -----------------------------------------------------------------------
# For a receiver that is a bulk act, which the leader does, as `pgqueue replay` asks for
# it. Into a topic the messages are published again, in one transaction.

VERB = "replay"

# Nobody alone: all who subscribe to the topic, or read it.
EVERYBODY: tuple[str, dict[str, Any]] = (
    "",
    {"kind": "queue", "queue": "", "name": "", "task": ""},
)

# Messages of a range, as a stage has them. The first word of a name is its topic.
# Locks: none.
RANGE = """
(SELECT {to}::text || substr(m.name, {length}) AS name, m.key, m.payload, m.headers,
        NULL::timestamptz AS run_after, m.id
   FROM pgqueue_message m
  WHERE m.topic_id + 0 = {topic} AND m.id > {position} AND m.id <= {top}
    AND m.published_at >= {since}::timestamptz
    AND m.published_at < {until}::timestamptz)
"""
# How many of a range. Locks: none.
COUNT_MESSAGES = "SELECT count(*), min(m.id), max(m.id) FROM {rows} m"


def _replay_log(run: Run, asked: Asked) -> int:
    """
    Replay a range of a log; return how many messages are meant.

    Raises:
        MessagesLost: It begins before what retention has left.
        TopicError: There is no such topic or receiver.
        SparkError: Another run was quicker.
    """
    if not asked.is_preview and is_written(run, asked.name):
        return 0
    if asked.to_topic is not None:
        return _publish(run, asked, asked.to_topic)
    with run.reading() as cursor:
        plan = _look(cursor, asked)
        with cursor.connection.transaction():
            limit(cursor, seconds=None, plans=Plans.IN_ORDER)
            plan = replay.counted(cursor, plan)
    run.rows_in += plan.messages
    told = f"{plan.messages:,}{' or more' if plan.is_more else ''} messages"
    if plan.first is not None and plan.last is not None:
        told += f", published from {_utc(plan.first)} to {_utc(plan.last)}"
    if asked.is_preview:
        run.note(f"{asked.topic} → {plan.into}: {told}. Nothing was written.")
        return 0

    def ask(connection: Any, write: Write, outcome: Outcome) -> None:
        act = bulk_acts.create(
            connection.cursor(),
            VERB,
            plan.said,
            bulk_acts.Extent(
                plan.messages, plan.is_more, plan.top, plan.at, position=plan.position
            ),
            by=run.by,
            reason=f"pipeline run {run.id}: {write.name}",
            per_second=asked.rate,
        )
        outcome.rows = plan.messages
        outcome.queues.add(plan.range.queue)
        outcome.hints.add(bulk_acts.HINT)
        run.note(
            f"{asked.topic} → {plan.into}: {told}. The worker that leads replays them: "
            f"manage.py pgqueue acts show {act}"
        )

    return write_named(run, asked.name, ask, keeps_empty=plan.is_more).rows


def _publish(run: Run, asked: Asked, to: str) -> int:
    """Publish messages of a log to a topic, all in one transaction."""
    with run.reading() as cursor:
        plan = _look(cursor, asked)
        rows = sql.SQL(RANGE).format(
            to=sql.Literal(to),
            length=sql.Literal(len(asked.topic) + 1),
            topic=sql.Literal(plan.topic.id),
            position=sql.Literal(plan.position),
            top=sql.Literal(plan.top),
            since=sql.Literal(_text(plan.range.since, "-infinity")),
            until=sql.Literal(_text(plan.range.until, "infinity")),
        )
        if asked.is_preview:
            with cursor.connection.transaction():
                limit(cursor, seconds=None, plans=Plans.IN_ORDER)
                cursor.execute(sql.SQL(COUNT_MESSAGES).format(rows=rows))
                count, *_ = one_row(cursor)
            run.note(f"{asked.topic} → {to}: {count:,} messages. Nothing was written.")
            return 0

    def publish(connection: Any, write: Write, outcome: Outcome) -> None:
        cursor = connection.cursor()
        # Retention removes none of them meanwhile.
        groups.topic_of(cursor, asked.topic, makes=False)
        limit(cursor, seconds=None, plans=Plans.IN_ORDER)
        publishing = Publishing(to, {}, asked.rate, is_marked=True)
        outcome.rows = publishing(connection, write, outcome, rows)

    done = write_named(run, asked.name, publish).rows
    run.rows_in += done
    run.note(f"{asked.topic} → {to}: {done:,} messages published again.")
    return done


def _look(cursor: Any, asked: Asked) -> replay.Plan:
    row = groups.topic_of(cursor, asked.topic, makes=False)
    receiver = EVERYBODY
    if asked.to_topic is None:
        receiver = receivers.find(cursor, asked.topic, asked.to)
    return replay.look(
        cursor,
        asked.topic,
        row,
        receiver,
        since=asked.since,
        until=asked.until,
        where=None,
    )


def _text(moment: datetime | None, usual: str) -> str:
    return usual if moment is None else moment.isoformat()


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


# From the lake ----------------------------------------------------------------------
# They are written as any DataFrame is: all or none, once under a name. What is JSON in
# them is so as the database had it; a value that redaction has hidden there is lost,
# and refuses its row.

# What a job that is replayed keeps.
OF_JOB = (
    *("task", "queue", "args", "kwargs", "headers", "priority", "max_attempts"),
    *("lane", "lane_capacity", "lane_spacing", "lane_burst", "lane_policy"),
)
# What a message that is published again keeps; its id is for the order.
OF_MESSAGE = ("id", "name", "key", "payload", "headers")


def _replay_files(run: Run, asked: Asked) -> int:
    """
    Replay what files have; return how many messages or jobs that are.

    Raises:
        SparkError: There are no such files, or a row was refused.
    """
    since, until = (
        moment_of(bound, run.started_at) if isinstance(bound, Start) else None
        for bound in (asked.since, asked.until)
    )
    if asked.topic:
        frame = lake_messages(run, asked.source, asked.topic, since, until)
        for bound, sign in ((asked.since, ">="), (asked.until, "<=")):
            if isinstance(bound, int):
                frame = frame.where(f"id {sign} {bound}")
    else:
        frame = lake_jobs(run, asked, since, until)
    if asked.where is not None:
        frame = frame.where(asked.where)
    if asked.is_preview:
        tell_frame(run, frame, of_jobs=not asked.topic)
        return 0
    given: dict[str, Any] = {
        "name": asked.name,
        "perSecond": None if asked.rate is None else str(asked.rate),
        "refusedPath": asked.refused_path,
    }
    if not asked.topic:
        return _enqueue(run, frame, asked, given)
    if asked.to_topic is None:
        frame = frame.select(*OF_LOG)
        return run.enqueue(frame, topic=asked.topic, receiver=asked.to, **given)
    rest = f.expr(f"substring(name, {len(asked.topic) + 1})")
    frame = frame.select(*OF_MESSAGE).withColumn(
        "name", f.concat(f.lit(asked.to_topic), rest)
    )
    return run.enqueue(frame, topic=asked.to_topic, encoded="true", **given)


def lake_messages(
    run: Run,
    path: str,
    topic: str,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Any:
    """
    Return the messages of *topic* that ingest has written to *path*, as a DataFrame.

    Those from *since* on, and before *until*; None: there is no such end.

    Raises:
        SparkError: There are none.
    """
    files = _files(run, path, since, until, topic)
    columns = [column for column in LOG.columns if column.name != "topic"]
    # The folders of batches have none but the topic and the day.
    reader = run.session.read.schema(ddl(columns)).option("recursiveFileLookup", "true")
    frame = reader.parquet(*files).withColumn("topic", f.lit(topic))
    frame = frame.withColumn("day", f.to_date("published_at"))
    return _between(frame, "published_at", since, until)


def lake_jobs(
    run: Run, asked: Asked, since: datetime | None, until: datetime | None
) -> Any:
    """
    Return the jobs that export has written and that are meant, as a DataFrame.

    Raises:
        SparkError: There are none.
    """
    files = _files(run, asked.source, since, until)
    # Else Spark takes a queue 007 for a number.
    reader = run.session.read.schema(f"{ddl(ARCHIVE.columns)}, day date")
    frame = reader.option("basePath", for_spark(asked.source)).parquet(*files)
    for name, value in asked.jobs.items():
        frame = frame.where(f.col(name) == value)
    return _between(frame, "finished_at", since, until)


def tell_frame(run: Run, frame: Any, *, of_jobs: bool) -> None:
    """Note how many messages by name and day, or jobs by task and day, there are."""
    name, at = ("task", "finished_at") if of_jobs else ("name", "published_at")
    others = f.count("message_id") if of_jobs else f.lit(0)
    found = (
        frame.groupBy(name, f.to_date(at).cast("string").alias("on"))
        .agg(f.count(f.lit(1)), others)
        .orderBy(name, "on")
        .collect()
    )
    tell(run, [tuple(row) for row in found], "jobs" if of_jobs else "messages")


def _enqueue(run: Run, frame: Any, asked: Asked, given: dict[str, Any]) -> int:
    frame = frame.where(f.col("message_id").isNull()).select(*OF_JOB)
    into = asked.to.removeprefix(QUEUE)
    if into:
        frame = frame.withColumn("queue", f.lit(into))
    return run.enqueue(frame, encoded="true", **given)


def _between(
    frame: Any, column: str, since: datetime | None, until: datetime | None
) -> Any:
    if since is not None:
        frame = frame.where(f.col(column) >= f.lit(since))
    if until is not None:
        frame = frame.where(f.col(column) < f.lit(until))
    return frame


def _files(
    run: Run,
    path: str,
    since: datetime | None,
    until: datetime | None,
    topic: str | None = None,
) -> list[str]:
    """Return the files of a table as Spark has them, without those of other days."""
    lake = LakeTable(run, path)
    if lake.latest() is None:
        raise SparkError(f"There is no Delta table at {path}.")
    found = [
        (f"{for_spark(path)}/{file['path']}", file["partition.day"])
        for file in lake.files()
        if topic is None or file.get("partition.topic") == topic
    ]
    if not found:
        raise SparkError(f"There is nothing of that in the Delta table at {path}.")
    meant = [
        name
        for name, day in found
        if (since is None or day >= since.date())
        and (until is None or day <= until.date())
    ]
    # Of one there is a DataFrame, even if it has no row that is meant.
    return meant or [found[0][0]]
