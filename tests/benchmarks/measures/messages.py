"""Rates of messages: topics, captured tables and pull queues, beside plain SQL."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace as changed
from functools import partial
from typing import Any

from django.db import connection

from django_pgqueue.bounds import PAYLOAD_BYTES_DEFAULT
from django_pgqueue.log.captures import ACTS, Capture, replace
from django_pgqueue.models import Subscription
from tests.benchmarks.database import Connection
from tests.benchmarks.measure import Opened, Pair, PairRun, measure, sides
from tests.benchmarks.measures.tasks import BATCH, LOG, READERS, READS, TOPIC
from tests.benchmarks.scratch import Scratch, committed_at, payloads

Opening = Generator[PairRun, None, None]

# A log that one would write by hand: a table with the columns of a message, an index
# to read it by, and a row for each position. It has no partitions by day, no horizon,
# so it skips what commits late, no lease and no fence, and one thread reads. ----------

MESSAGES = "pgqueue_yardstick_message"
POSITIONS = "pgqueue_yardstick_position"
KEY, PARTITIONS, TOPIC_ID = "customer", 16, 1

CREATE_LOG = f"""
CREATE TABLE {MESSAGES} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic integer NOT NULL,
    partition smallint NOT NULL,
    name text NOT NULL,
    key text,
    payload jsonb NOT NULL,
    headers jsonb NOT NULL DEFAULT '{{}}');
CREATE INDEX ON {MESSAGES} (topic, partition, id);
CREATE TABLE {POSITIONS} (partition smallint PRIMARY KEY, position bigint NOT NULL)
    WITH (fillfactor = 50)
"""

PARTITION_OF = f"(hashtextextended({{key}}, 0) & 9223372036854775807) %% {PARTITIONS}"

INSERT = f"""
INSERT INTO {MESSAGES} (topic, partition, name, key, payload)
SELECT {TOPIC_ID}, {PARTITION_OF.format(key="key")}, '{TOPIC}', key, %s::jsonb
  FROM (SELECT %s::text) given(key)
RETURNING id
"""

INSERT_MANY = f"""
INSERT INTO {MESSAGES} (topic, partition, name, key, payload)
SELECT {TOPIC_ID}, {PARTITION_OF.format(key=f"item ->> '{KEY}'")}, '{TOPIC}',
       item ->> '{KEY}', item
  FROM jsonb_array_elements(%s::jsonb) AS item
RETURNING id
"""

INSERT_AND_FAN_OUT = f"""
WITH message AS ({INSERT_MANY}), fanned AS (
    INSERT INTO pgqueue_yardstick (queue, task, args, kwargs)
    SELECT 'q' || n, '{TOPIC}', jsonb_build_array(message.id), '{{}}'
      FROM message, generate_series(1, %s) n)
SELECT id FROM message
"""

REWIND = f"""
INSERT INTO {POSITIONS} SELECT n, 0 FROM generate_series(0, {PARTITIONS - 1}) n
    ON CONFLICT (partition) DO UPDATE SET position = 0
"""

READ = f"""
SELECT id, name, key, payload, headers, published_at FROM {MESSAGES}
 WHERE topic = {TOPIC_ID} AND partition = %s
   AND id > (SELECT position FROM {POSITIONS} WHERE partition = %s)
 ORDER BY id LIMIT {BATCH}
"""

MOVE = f"UPDATE {POSITIONS} SET position = %s WHERE partition = %s"

# Of messages that nobody else publishes: where their partitions end.
ENDS = """
SELECT topic_id, partition, max(id) FROM pgqueue_message
 WHERE id >= %s GROUP BY topic_id, partition
"""

# Whether any group has not read a partition up to its end, or there is none yet.
IS_BEHIND = """
SELECT EXISTS (
       SELECT FROM unnest(%s::int[], %s::int[], %s::bigint[]) AS e(topic, partition, id)
         LEFT JOIN pgqueue_consumer_group g ON g.topic_id = e.topic
         LEFT JOIN pgqueue_position p ON p.group_id = g.id AND p.partition = e.partition
        WHERE p.position IS NULL OR p.position < e.id)
"""
HAS_POSITIONS = "SELECT EXISTS (SELECT FROM pgqueue_position)"

# For each message of a bulk publish, so many are read; and this share is published one
# by one, with a commit each.
READ_TIMES, SINGLE_SHARE = 5, 0.05


def messages(count: int) -> list[dict[str, Any]]:
    """Return the payloads of *count* messages: as JSON, about 100 bytes each."""
    return [
        {"order_id": n, KEY: f"c{n % 1_000}", "note": "x" * 60} for n in range(count)
    ]


def single(scratch: Scratch, *, by_django: bool) -> Opening:
    """publish() in a loop, beside INSERT in a loop."""
    scratch.add_yardstick(CREATE_LOG, MESSAGES, POSITIONS)

    def each(publish: Callable[[Any], object], jobs: int) -> float:
        items = messages(max(round(jobs * SINGLE_SHARE), 1))
        started = time.perf_counter()
        for item in items:
            publish(item)
        return len(items) / (time.perf_counter() - started)

    def insert(item: Any) -> None:
        with (connection if by_django else scratch.plain).cursor() as cursor:
            cursor.execute(INSERT, [json.dumps(item), item[KEY]])
            cursor.fetchone()

    yield sides(
        scratch,
        partial(each, lambda item: LOG.publish(item, key=item[KEY])),
        partial(each, insert),
    )


def in_bulk(scratch: Scratch, *, subscriptions: int) -> Opening:
    """publish_many(), beside INSERT … SELECT and a row for each subscription."""
    scratch.add_yardstick(CREATE_LOG, MESSAGES, POSITIONS)
    for n in range(subscriptions):
        subscribe(TOPIC, queue=f"q{n}")

    def pair(jobs: int) -> Pair:
        scratch.empty()
        items = messages(jobs)
        started = time.perf_counter()
        LOG.publish_many(items, key=KEY)
        rate = jobs / (time.perf_counter() - started)
        scratch.empty()
        other = jobs / insert_many(scratch, jobs, subscriptions)
        return Pair(rate, other, {} if subscriptions else {"published": rate})

    yield pair
    Subscription.objects.all().delete()


def insert_many(scratch: Scratch, count: int, subscriptions: int = 0) -> float:
    """Insert messages by the yardstick; return the seconds."""
    items = messages(count)
    started = time.perf_counter()
    statement, values = INSERT_MANY, [json.dumps(items)]
    if subscriptions:
        statement, values = INSERT_AND_FAN_OUT, [*values, subscriptions]
    scratch.plain.execute(statement, values).fetchall()
    return time.perf_counter() - started


def reading(scratch: Scratch) -> Opening:
    """A group of a real worker, beside SELECT and UPDATE in one thread."""
    scratch.add_yardstick(CREATE_LOG, MESSAGES, POSITIONS)
    with scratch.worker(threads=1, **{READS: "1"}) as worker:
        # It reads what is published from now on.
        worker.wait_while(lambda: not worker.value(HAS_POSITIONS))

        def pair(jobs: int) -> Pair:
            count = jobs * READ_TIMES
            scratch.empty()
            worker.rest()
            with committed_at() as at:
                first_id, *_ = LOG.publish_many(messages(count), key=KEY)
                with connection.cursor() as cursor:
                    cursor.execute(ENDS, [first_id])
                    ends = [list(column) for column in zip(*cursor, strict=True)]
            worker.wait_while(lambda: worker.value(IS_BEHIND, *ends))
            rate = count / (time.monotonic() - at[0])
            scratch.empty()
            insert_many(scratch, count)
            return Pair(rate, count / read_all(scratch.plain), {"read": rate})

        yield pair


def read_all(plain: Connection) -> float:
    """Read every partition to its end, batch by batch; return the seconds."""
    plain.execute(REWIND)
    started = time.perf_counter()
    left = list(range(PARTITIONS))
    while left:
        partition = left.pop(0)
        rows = plain.execute(READ, [partition, partition]).fetchall()
        if rows:
            plain.execute(MOVE, [rows[-1][0], partition])
            left.append(partition)
    return time.perf_counter() - started


def subscribe(name: str, *, queue: str) -> None:
    """Let somebody want the messages of a topic."""
    Subscription.objects.create(pattern=name, topic=name, queue=queue, task=TOPIC)


# Captured tables ---------------------------------------------------------------------

TABLE = "pgqueue_bench_captured"
CAPTURE = Capture(
    name=TABLE,
    on=ACTS,
    columns=("status", "total", "note"),
    without=(),
    when=None,
    wakes="on_commit",
    bytes_max=PAYLOAD_BYTES_DEFAULT,
)
CREATE_TABLE = f"""
CREATE TABLE {TABLE} (
    id bigint PRIMARY KEY,
    status text NOT NULL,
    total numeric NOT NULL,
    note text NOT NULL,
    body text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp())
"""
FILL = f"""
INSERT INTO {TABLE} (id, status, total, note, body)
SELECT n, 'new', n * 1.5, repeat('x', 60), repeat('y', 400)
  FROM generate_series(1, %s) n
"""
UPDATE_ALL = f"UPDATE {TABLE} SET status = 'paid'"
UPDATE_ONE = f"{UPDATE_ALL} WHERE id = %s"

# Of the rows that one statement changes, so many are changed one by one.
ONE_SHARE, WRITERS = 0.1, 8

# Changes rows, and returns how many.
Writing = Callable[[Sequence[Connection], int], int]


def write_one(plain: Sequence[Connection], rows: int) -> int:
    """By their primary keys, all in one transaction."""
    count = max(round(rows * ONE_SHARE), 1)
    with plain[0].transaction():
        for number in range(count):
            plain[0].execute(UPDATE_ONE, [number + 1])
    return count


def write_many(plain: Sequence[Connection], rows: int) -> int:
    """All in one statement."""
    plain[0].execute(UPDATE_ALL)
    return rows


def write_together(plain: Sequence[Connection], rows: int) -> int:
    """Commits of one row each on all connections."""
    each = max(round(rows * ONE_SHARE / len(plain)), 1)

    def commit(place: int) -> None:
        for number in range(each):
            plain[place].execute(UPDATE_ONE, [place * each + number + 1])

    threads = [threading.Thread(target=commit, args=[n]) for n in range(len(plain))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return each * len(plain)


def captures(
    write: Writing, figure: str, captured: Capture, beside: Capture | None
) -> Opened:
    """Return rows per second with a capture, beside another one or none."""

    def opened(scratch: Scratch) -> Opening:
        scratch.add_yardstick(CREATE_TABLE, TABLE)
        subscribe(TABLE, queue="q")
        with ExitStack() as stack:
            plain = [stack.enter_context(scratch.connect()) for _ in range(WRITERS)]

            def rate(capture: Capture | None, jobs: int) -> float:
                scratch.empty()
                plain[0].execute(FILL, [jobs])
                with capturing(capture):
                    started = time.perf_counter()
                    return write(plain, jobs) / (time.perf_counter() - started)

            def pair(jobs: int) -> Pair:
                one, other = rate(captured, jobs), rate(beside, jobs)
                return Pair(one, other, {figure: (1 / one - 1 / other) * 1e6})

            yield pair
        Subscription.objects.all().delete()

    return opened


@contextmanager
def capturing(capture: Capture | None) -> Iterator[None]:
    """Capture the table while the block lasts."""
    with connection.schema_editor() as editor:
        replace(editor, TABLE, TABLE, before=(), capture=capture)
    yield
    if capture is not None:
        with connection.schema_editor() as editor:
            replace(editor, TABLE, TABLE, before=ACTS, capture=None)


# Pull queues, beside the tables and statements of PGMQ, as its documents have them. It
# has no errors, no priorities, no order of keys, no dead letters and no fence. --------

PULLED, PULLED_ARCHIVE = "pgqueue_yardstick_pull", "pgqueue_yardstick_pulled"
COLUMNS = "msg_id, read_ct, enqueued_at, vt, message, headers"

CREATE_PULL = f"""
CREATE TABLE {PULLED} (
    msg_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    read_ct integer NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL DEFAULT now(),
    vt timestamptz NOT NULL,
    message jsonb,
    headers jsonb);
CREATE INDEX ON {PULLED} (vt);
CREATE TABLE {PULLED_ARCHIVE} (
    msg_id bigint PRIMARY KEY,
    read_ct integer NOT NULL DEFAULT 0,
    enqueued_at timestamptz NOT NULL DEFAULT now(),
    archived_at timestamptz NOT NULL DEFAULT now(),
    vt timestamptz NOT NULL,
    message jsonb,
    headers jsonb);
CREATE INDEX ON {PULLED_ARCHIVE} (archived_at)
"""
PGMQ_SEND = f"""
INSERT INTO {PULLED} (vt, message)
SELECT clock_timestamp(), unnest(%s::jsonb[]) RETURNING msg_id
"""
PGMQ_RECEIVE = f"""
WITH found AS (
    SELECT msg_id FROM {PULLED} WHERE vt <= clock_timestamp()
     ORDER BY msg_id LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE {PULLED} AS m
   SET vt = clock_timestamp() + interval '60 s', read_ct = m.read_ct + 1
  FROM found WHERE m.msg_id = found.msg_id
RETURNING m.msg_id, m.read_ct, m.enqueued_at, m.vt, m.message, m.headers
"""
PGMQ_ACK = f"""
WITH gone AS (DELETE FROM {PULLED} WHERE msg_id = ANY(%s) RETURNING {COLUMNS})
INSERT INTO {PULLED_ARCHIVE} ({COLUMNS}) SELECT {COLUMNS} FROM gone RETURNING msg_id
"""

QUEUE = "benchmarks_pull"
DECLARE = f"SELECT pgqueue_declare_queue('{QUEUE}', 60, 5)"
SEND = f"SELECT pgqueue_send('{QUEUE}', %s::jsonb, wakes => false)"
SEND_MANY = f"SELECT pgqueue_send_many('{QUEUE}', %s::jsonb, wakes => false)"
RECEIVE = f"""
SELECT receipt, id, deliveries, payload, headers FROM pgqueue_receive('{QUEUE}', %s)
"""
ACK = "SELECT pgqueue_ack(%s)"

SIZES = (1, 10, 100)
# Of each verb in a run: single messages take longest.
CALLS_MAX = 500


def pulls(scratch: Scratch, *, size: int) -> Opening:
    """
    Send all, receive all and ack all, in batches of one size, a commit each.

    The two sides take turns batch by batch, since what a commit waits for changes from
    one second to the next.
    """
    scratch.add_yardstick(CREATE_PULL, PULLED, PULLED_ARCHIVE)

    def call(statement: str, value: Any) -> list[Any]:
        rows = scratch.plain.execute(statement, [value]).fetchall()
        return [row[0] for row in rows]

    def send(batch: list[Any]) -> None:
        if size == 1:
            call(SEND, json.dumps(batch[0]))
        else:
            call(SEND_MANY, json.dumps(batch))

    def in_turns(
        own: Callable[[Any], Any], other: Callable[[Any], Any], *batches: Sequence[Any]
    ) -> tuple[list[Any], list[Any], list[float]]:
        """Call both with each of their batches; return what they did, and seconds."""
        given: tuple[list[Any], list[Any]] = [], []
        seconds = [0.0, 0.0]
        for pair in zip(*batches, strict=True):
            for side, act in enumerate((own, other)):
                started = time.perf_counter()
                given[side].append(act(pair[side]))
                seconds[side] += time.perf_counter() - started
        return (*given, seconds)

    def pair(jobs: int) -> Pair:
        calls = min(max(jobs // size, 1), CALLS_MAX)
        scratch.empty()
        scratch.plain.execute(DECLARE)
        batches = [payloads(size) for _ in range(calls)]
        *_, sent = in_turns(
            send,
            lambda batch: call(PGMQ_SEND, [json.dumps(item) for item in batch]),
            batches,
            batches,
        )
        receipts, ids, received = in_turns(
            partial(call, RECEIVE), partial(call, PGMQ_RECEIVE), *[[size] * calls] * 2
        )
        *_, acked = in_turns(
            lambda each: call(ACK, " ".join(each)),
            partial(call, PGMQ_ACK),
            receipts,
            ids,
        )
        verbs = {"send": sent, "receive": received, "ack": acked}
        own, other = (sum(side) for side in zip(*verbs.values(), strict=True))
        count = calls * size
        also = {f"{verb}/PGMQ": pgmq / ours for verb, (ours, pgmq) in verbs.items()}
        return Pair(count / own, count / other, also)

    yield pair


measure(
    "topics",
    f"publish one by one, in bulk with 0, 1, 5 subscriptions; read, {READERS} readers",
    "ratio >= 0.7",
    "published >= 50,000 msg/s",
    "read >= 100,000 msg/s",
    parts={
        "single": partial(single, by_django=False),
        "single_django": partial(single, by_django=True),
        "bulk": partial(in_bulk, subscriptions=0),
        "bulk_1": partial(in_bulk, subscriptions=1),
        "bulk_5": partial(in_bulk, subscriptions=5),
        "read": reading,
    },
    counted=("bulk", "read"),
    unit="msg/s",
)
measure(
    "capture",
    'statements whose rows are published, of one row and of all; wakes="now"',
    parts={
        "one": captures(write_one, "one_us", CAPTURE, None),
        "many": captures(write_many, "many_us", CAPTURE, None),
        "now": captures(
            write_together, "now_us", changed(CAPTURE, wakes="now"), CAPTURE
        ),
    },
    unit="rows/s",
    jobs=10_000,
    beside='no capture; of now: wakes="on_commit"',
)
measure(
    "pull",
    "messages sent, received and acked in batches of 1, 10 and 100",
    "ratio >= 0.8",
    parts={str(size): partial(pulls, size=size) for size in SIZES},
    unit="msg/s",
    jobs=5_000,
    beside="PGMQ's statements",
)
