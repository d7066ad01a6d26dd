"""Log retention: rounds of steps, beside readers, seeks and publishers, and crashes."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import psycopg
import pytest

from django_pgqueue import signals
from django_pgqueue.log import days as log
from django_pgqueue.log import retain
from django_pgqueue.log.days import close_days
from django_pgqueue.log.groups import topic_of
from django_pgqueue.log.publish import publish
from django_pgqueue.models import Job, LogDay, Message, Position
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.postgres.day_tables import LOG, PENDING
from django_pgqueue.worker.chores.log_retention import (
    HELD_PAUSE_SECONDS,
    PAUSE_SECONDS,
    STEP_PAUSE_SECONDS_MAX,
    LogRetention,
)
from tests.harness.factories import (
    make_dead_letter,
    make_group,
    make_job,
    make_message,
    make_position,
    make_topic,
)

WEEK = timedelta(days=7)


def run_round(link, chore=None):
    """Take steps until there is nothing left to do; return the last pause."""
    chore = chore or LogRetention(WEEK)
    for _ in range(100):
        pause = chore(link)
        if pause > STEP_PAUSE_SECONDS_MAX:
            return pause
    raise AssertionError("a round has no end")


@pytest.fixture
def lost():
    """What the signal told, as it is sent."""
    told = []

    def hear(sender, **fields):
        told.append(fields)

    signals.group_lost_messages.connect(hear)
    yield told
    signals.group_lost_messages.disconnect(hear)


@pytest.fixture
def nine(cursor, log_days):
    """The day nine days ago."""
    return log_days(9)


def refer(message):
    value = [message.pk, message.published_at.isoformat()]
    return [{"__pgqueue__": "message", "value": value}]


def test_a_round_removes_what_is_old_and_keeps_the_rest(
    link, cursor, nine, log_days, lost, caplog
):
    """A day that no topic keeps is dropped; of another one, a topic's part goes."""
    caplog.set_level("INFO", "django_pgqueue.worker")
    eight = log_days(8)
    orders, audit = make_topic(), make_topic(name="audit", retain=timedelta(days=60))
    gone = [make_message(orders, 9), make_message(orders, 8, payload={"a": 1})]
    kept = [make_message(orders, 0), make_message(audit, 8)]
    make_position(make_group(orders), position=gone[0].pk - 1)
    job = make_job(args=refer(gone[1]), message_id=gone[1].pk)
    close_days(cursor)

    assert PAUSE_SECONDS == run_round(link)

    assert {each.pk for each in kept} == set(
        Message.objects.values_list("pk", flat=True)
    )
    assert (False, True) == (
        nine in LOG.attached(cursor),
        eight in LOG.attached(cursor),
    )
    assert [eight] == list(LogDay.objects.values_list("day", flat=True))
    assert {"a": 1} == Job.objects.get(pk=job.pk).args[0]["value"]["payload"]
    (told,) = lost
    assert ("orders", "stats", (0,), 2, True, gone[0].pk, gone[1].pk) == tuple(
        told[name]
        for name in (
            *("topic", "group", "partitions", "messages"),
            *("is_exact", "first_id", "last_id"),
        )
    )
    assert [
        (
            f"lost       group=orders/stats messages=2 ids={gone[0].pk}..{gone[1].pk} "
            "partitions=0: they are kept no longer; "
            "the group is halted"
        ),
        f"dropped    log partition day={nine}",
        f"purged     messages=1 topic=orders day={eight}",
    ] == caplog.messages


def test_a_job_that_dies_while_jobs_are_looked_through_gets_its_message(
    link, cursor, nine
):
    """It goes to the dead letters, which were looked at before it."""
    message = make_message(make_topic(), 9, payload={"a": 1})
    refers = {"args": refer(message), "message_id": message.pk}
    job = make_job(**refers)
    make_dead_letter(id=job.pk + 1)
    close_days(cursor)
    chore = LogRetention(WEEK)
    # Announced; the dead letters.
    assert 2 == sum(chore(link) < STEP_PAUSE_SECONDS_MAX for _ in range(2))
    job_id = job.pk
    job.delete()
    dead = make_dead_letter(id=job_id, **refers)

    assert PAUSE_SECONDS == run_round(link, chore)
    assert not Message.objects.exists()
    dead.refresh_from_db()
    assert {"a": 1} == dead.args[0]["value"]["payload"]


# Crashes -----------------------------------------------------------------------------

# Where the worker's backend is killed: before a function runs, or right after it.
CRASHES = [
    ("before", retain, "announce"),
    ("after", retain, "announce"),
    ("before", retain, "inline_dead_letters"),
    ("after", retain, "inline_dead_letters"),
    ("after", retain, "inline_jobs"),
    ("before", log, "drop_day"),
    ("before", log, "_forget"),
    ("after", log, "drop_day"),
    ("before", retain, "delete_batch"),
    ("after", retain, "delete_batch"),
]


@pytest.mark.parametrize(
    "when,module,name", CRASHES, ids=[f"{when} {name}" for when, _, name in CRASHES]
)
def test_the_next_round_finishes_what_a_crash_left(
    link, cursor, other_cursor, nine, log_days, lost, monkeypatch, when, module, name
):
    """Whatever step it came after: nothing is lost untold, or removed too early."""
    eight = log_days(8)
    orders, audit = make_topic(), make_topic(name="audit", retain=timedelta(days=60))
    gone = [make_message(orders, 9), make_message(orders, 8)]
    kept = make_message(audit, 8)
    make_position(make_group(orders))
    make_job(args=refer(gone[0]), message_id=gone[0].pk)
    make_dead_letter(args=refer(gone[1]), message_id=gone[1].pk)
    close_days(cursor)
    step = getattr(module, name)

    def crash(cursor, *args, **kwargs):
        answer = step(cursor, *args, **kwargs) if when == "after" else None
        other_cursor.execute(
            "SELECT pg_terminate_backend(%s)", [cursor.connection.info.backend_pid]
        )
        if when == "before":
            step(cursor, *args, **kwargs)
        cursor.execute("SELECT 1")
        return answer

    with monkeypatch.context() as broken:
        broken.setattr(module, name, crash)
        chore = LogRetention(WEEK)
        with pytest.raises(psycopg.OperationalError):
            run_round(link, chore)
    # Nothing of the group was removed that it was not told of.
    if not Message.objects.filter(pk=gone[0].pk).exists():
        assert "retention" == Position.objects.get().halted_for

    assert PAUSE_SECONDS == run_round(link, chore)

    assert [kept.pk] == list(Message.objects.values_list("pk", flat=True))
    assert (False, True) == (
        nine in LOG.attached(cursor),
        eight in LOG.attached(cursor),
    )
    assert [] == LOG.left_over(cursor)
    assert gone[0].pk == Job.objects.get().args[0]["value"]["id"]
    position = Position.objects.get()
    assert ("retention", 1) == (position.halted_for, len(position.errors))
    assert gone[1].pk == position.errors[0]["last_id"]
    if name != "announce" or when == "before":
        assert 1 == len(lost)


# Beside others -----------------------------------------------------------------------

FILL = """
INSERT INTO pgqueue_message (published_at, topic_id, partition, name, payload)
SELECT %s, %s, 0, 'orders', '1' FROM generate_series(1, 400) RETURNING id
"""
READ = """
SELECT id FROM pgqueue_message
 WHERE topic_id = %s AND partition = 0 AND id > %s ORDER BY id LIMIT 20
"""
MOVE = """
UPDATE pgqueue_position SET position = %s
 WHERE id = %s AND fence = %s AND halted_at IS NULL
"""


def read_on(cursor, topic, position, seen, stop):
    """Read as a group does: take the fence, read, and move by it; until *stop*."""
    while not stop.is_set():
        cursor.execute(
            "UPDATE pgqueue_position SET fence = fence + 1"
            " WHERE id = %s AND halted_at IS NULL RETURNING fence, position",
            [position.pk],
        )
        claimed = cursor.fetchone()
        if claimed is None:
            stop.wait(0.01)
            continue
        fence, at = claimed
        cursor.execute(READ, [topic.pk, at])
        ids = [message for (message,) in cursor.fetchall()]
        if ids:
            cursor.execute(MOVE, [ids[-1], position.pk, fence])
            if cursor.rowcount:
                seen.append((at, ids))


def test_a_reader_a_seek_and_publishers_beside_the_removal(
    link, new_cursor, nine, log_days, lost, in_thread
):
    """
    Each message is read, or told to be lost; none is passed over silently (T3).

    Several groups read from the beginning while their days go, another one seeks back
    again and again, and messages are published all the while.
    """
    cursor = new_cursor()
    topic = make_topic()
    old_days = [nine, log_days(8)]
    old = set()
    for day in old_days:
        cursor.execute(FILL, [f"{day} 12:00+00", topic.pk])
        old |= {message for (message,) in cursor.fetchall()}
    close_days(cursor)
    positions = [make_position(make_group(topic, name=f"stats{n}")) for n in range(3)]
    seen = {position.pk: [] for position in positions}
    stop = threading.Event()
    threads = [
        in_thread(read_on, new_cursor(), topic, position, seen[position.pk], stop)
        for position in positions
    ]

    def seek_back(cursor):
        while not stop.is_set():
            with cursor.connection.transaction():
                lowest = topic_of(cursor, topic.name).removed_to
                cursor.execute(
                    "UPDATE pgqueue_position SET position = %s, fence = fence + 1"
                    " WHERE id = %s AND halted_at IS NULL",
                    [lowest, positions[0].pk],
                )

    def publish_on(cursor):
        while not stop.is_set():
            item = Items(json.dumps(["orders", None, 1, {}]), 1)
            publish(cursor, "orders", [item] * 3)

    threads += [in_thread(seek_back, new_cursor()), in_thread(publish_on, new_cursor())]
    try:
        assert PAUSE_SECONDS == run_round(link)
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)

    assert set() == set(old_days) & set(LOG.attached(cursor))
    assert "stats0" in {told["group"] for told in lost}
    for position in positions:
        position.refresh_from_db()
        told = {
            each
            for entry in position.errors or []
            for each in range(entry["first_id"], entry["last_id"] + 1)
        }
        read = {each for _, ids in seen[position.pk] for each in ids}
        assert set() == old - read - told


def test_a_detach_that_was_cut_off_is_gone_on_with(
    link, cursor, other_cursor, nine, monkeypatch
):
    """A transaction that has published stays open for longer than the leader waits."""
    monkeypatch.setattr(log, "DETACH_PATIENCE", "200ms")
    make_message(make_topic(), 9)
    make_topic(name="mail")
    close_days(cursor)
    chore = LogRetention(WEEK)
    with other_cursor.connection.transaction():
        publish(other_cursor, "mail", [Items(json.dumps(["mail", None, 1, {}]), 1)])
        assert HELD_PAUSE_SECONDS == run_round(link, chore)
        cursor.execute(PENDING, {"parent": "pgqueue_message"})
        assert 1 == len(cursor.fetchall())
        assert HELD_PAUSE_SECONDS == run_round(link, chore)

    assert PAUSE_SECONDS == run_round(link, chore)
    assert nine not in LOG.attached(cursor)
    assert [] == LOG.left_over(cursor)
