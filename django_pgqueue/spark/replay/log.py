"""
From the log: the database replays its own messages, and Spark is not asked.

For a receiver that is a bulk act, which the leader does, as `pgqueue replay` asks for
it. Into a topic the messages are published again, in one transaction.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from psycopg import sql

from django_pgqueue.log import groups, receivers
from django_pgqueue.log.replay import Plan, counted, look
from django_pgqueue.postgres.cursor import one_row
from django_pgqueue.queues import bulk_acts
from django_pgqueue.spark.replay import named
from django_pgqueue.spark.replay.asked import Asked
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.write.journal import Outcome, Write
from django_pgqueue.spark.write.staged import Publishing

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
# Along the index of ids, whatever statistics say: as Plans.IN_ORDER. Locks: none.
IN_ORDER = """
SELECT set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)
"""
# How many of a range. Locks: none.
COUNT = "SELECT count(*), min(m.id), max(m.id) FROM {rows} m"


def replay(run: Run, asked: Asked, *, is_preview: bool) -> int:
    """
    Replay a range of a log; return how many messages are meant.

    Raises:
        MessagesLost: It begins before what retention has left.
        TopicError: There is no such topic or receiver.
        SparkError: Another run was quicker.
    """
    if not is_preview and named.is_written(run, asked.name):
        return 0
    if asked.to_topic is not None:
        return _publish(run, asked, asked.to_topic, is_preview=is_preview)
    with run.reading() as cursor:
        plan = _look(cursor, asked)
        with cursor.connection.transaction():
            cursor.execute(IN_ORDER)
            plan = counted(cursor, plan)
    run.rows_in += plan.messages
    told = f"{plan.messages:,}{' or more' if plan.is_more else ''} messages"
    if plan.first is not None and plan.last is not None:
        told += f", published from {_utc(plan.first)} to {_utc(plan.last)}"
    if is_preview:
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

    return named.write(run, asked.name, ask, keeps_empty=plan.is_more).rows


def _publish(run: Run, asked: Asked, to: str, *, is_preview: bool) -> int:
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
        if is_preview:
            with cursor.connection.transaction():
                cursor.execute(IN_ORDER)
                cursor.execute(sql.SQL(COUNT).format(rows=rows))
                count, *_ = one_row(cursor)
            run.note(
                f"{asked.topic} → {asked.to}: {count:,} messages. Nothing was written."
            )
            return 0

    def publish(connection: Any, write: Write, outcome: Outcome) -> None:
        cursor = connection.cursor()
        # Retention removes none of them meanwhile.
        groups.topic_of(cursor, asked.topic, makes=False)
        cursor.execute(IN_ORDER)
        publishing = Publishing(to, {}, asked.rate, is_marked=True)
        outcome.rows = publishing.store(connection, write, outcome, rows, {})

    done = named.write(run, asked.name, publish).rows
    run.rows_in += done
    run.note(f"{asked.topic} → {asked.to}: {done:,} messages published again.")
    return done


def _look(cursor: Any, asked: Asked) -> Plan:
    row = groups.topic_of(cursor, asked.topic, makes=False)
    receiver = EVERYBODY
    if asked.to_topic is None:
        receiver = receivers.find(cursor, asked.topic, asked.to)
    return look(
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
