"""publish(run_after=…): a message waits for its moment, and is published once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction

from django_pgqueue import (
    acancel_message,
    apublish,
    cancel_message,
    publish,
    publish_many,
    topic,
)
from django_pgqueue.log import scheduled
from django_pgqueue.models import Job, Message, ScheduledMessage, Topic
from django_pgqueue.postgres.connect import Link, connect
from django_pgqueue.postgres.wake import channel, listen
from django_pgqueue.testing import drain, freeze
from django_pgqueue.worker.chores.heartbeat import OVERDUE
from django_pgqueue.worker.chores.scheduler import LOOK_SECONDS, Scheduler
from tests.harness.notices import heard_until_now
from tests.log.test_publish import subscribe
from tests.schedules.conftest import tick_until_rest

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
CURSE = """
CREATE FUNCTION curse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.payload @> '{"cursed": true}' THEN RAISE 'a curse is on it'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER curse BEFORE INSERT ON pgqueue_message
    FOR EACH ROW EXECUTE FUNCTION curse();
"""
LIFT = "DROP TRIGGER curse ON pgqueue_message; DROP FUNCTION curse()"

orders = topic("orders")


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    """A scheduler that leads; its test calls tick()."""
    link = Link("default", name="tests: scheduler")
    made = Scheduler(link)
    made.set_leading(True)
    yield made
    link.drop()


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def publish_due(cursor: Any) -> list[Any]:
    """Publish a batch as a leader does; the caller commits."""
    batch = scheduled.due(cursor)
    return scheduled.publish(cursor, [each.id for each in batch])


def published() -> list[Any]:
    return list(Message.objects.order_by("id").values_list("payload", flat=True))


def waiting() -> list[Any]:
    rows = ScheduledMessage.objects.order_by("due_at", "-id")
    return list(rows.values_list("payload", flat=True))


def test_it_waits_for_its_moment_and_nobody_sees_it(scheduler: Scheduler):
    """Then it is in the log with its name, key and headers, and those of its moment."""
    moment = ago(5)
    due = orders.publish("orders.paid", 1, key="c7", headers={"a": 1}, run_after=moment)
    ids = [
        orders.publish(2, run_after="1h"),
        publish("orders", 3, run_after=HOUR),
        async_to_sync(apublish)("orders", 4, run_after=3_600),
        async_to_sync(orders.apublish)(5, run_after=moment + HOUR),
    ]
    assert sorted([due, *ids]) == sorted(
        ScheduledMessage.objects.values_list("id", flat=True)
    )
    assert max(due, *ids) < 0
    assert [] == published()
    assert not Topic.objects.exists()
    subscribe("orders", queue="mail")

    assert 0 < tick_until_rest(scheduler) <= LOOK_SECONDS

    message = Message.objects.get()
    assert message.id > 0
    assert ("orders.paid", "c7", 1) == (message.name, message.key, message.payload)
    assert {
        "a": 1,
        "pgqueue.run_after": moment.isoformat(),
        "pgqueue.scheduled_id": due,
    } == message.headers
    assert ["mail"] == [job.queue for job in Job.objects.all()]
    assert 4 == len(waiting())


def test_many_have_moments_of_their_own(scheduler: Scheduler):
    """Those of one topic are published in the order of these, then of the call."""
    made = [
        orders.message("orders.late", "second", run_after=ago(10)),
        orders.message("orders.now", "at once"),
        orders.message("orders.late", "first", run_after=ago(20)),
        orders.message("orders.late", "third", run_after=ago(10).replace(year=2025)),
    ]
    tie = ago(5)
    first = publish_many(made)
    second = orders.publish_many(made[:1] + made[1:2])
    third = orders.publish_many(["x", "y"], run_after=tie)
    assert [False, True, False, False] == [each > 0 for each in first]
    assert [False, True] == [each > 0 for each in second]
    assert 0 > third[0] > third[1]
    assert ["at once", "at once"] == published()

    tick_until_rest(scheduler)

    assert [
        *("at once", "at once", "third", "first", "second", "second", "x", "y")
    ] == published()
    assert [] == waiting()


def test_it_commits_with_its_transaction_or_never_was(scheduler: Scheduler):
    """One query; what is published at once and later, is all or nothing."""
    with transaction.atomic():
        orders.publish(1, run_after=0)
        publish_many([orders.message(2), orders.message(3, run_after=0)])
        tick_until_rest(scheduler)  # Another transaction sees none of them.
        transaction.set_rollback(True)
    tick_until_rest(scheduler)
    assert ([], []) == (published(), waiting())


def test_until_then_it_can_be_cancelled(scheduler: Scheduler):
    """In a transaction, and once; what is published or was never there is told."""
    first, second = orders.publish_many([1, 2], run_after=0)
    with transaction.atomic():
        assert cancel_message(first)
        transaction.set_rollback(True)
    assert async_to_sync(acancel_message)(first)
    tick_until_rest(scheduler)

    assert [2] == published()
    assert [False, False, False] == [
        cancel_message(each) for each in (first, second, -(2**63))
    ]


def test_leaders_at_once_publish_each_once():
    """Four, some of which die before their commit; and cancels beside them."""
    ids = orders.publish_many(range(2_000), run_after=0)
    barrier = threading.Barrier(5)

    def lead(number: int) -> None:
        link = Link("default", name="tests: leader")
        try:
            barrier.wait(20)
            for turn in range(100):
                with link.connection.transaction() as block, link.cursor() as cursor:
                    if not publish_due(cursor):
                        return
                    if (turn + number) % 3 == 0:
                        raise psycopg.Rollback(block)
        finally:
            link.drop()

    def cancel() -> set[int]:
        try:
            barrier.wait(20)
            return {
                place for place in range(1_999, 0, -9) if cancel_message(ids[place])
            }
        finally:
            connections.close_all()

    with ThreadPoolExecutor(5) as pool:
        leaders = [pool.submit(lead, number) for number in range(4)]
        cancelled = pool.submit(cancel).result(60)
        for each in leaders:
            each.result(60)
    lead_on = Link("default", name="tests: leader")
    try:
        while True:
            with lead_on.connection.transaction(), lead_on.cursor() as cursor:
                if not publish_due(cursor):
                    break
    finally:
        lead_on.drop()

    assert sorted(set(range(2_000)) - cancelled) == sorted(published())
    assert [] == waiting()


def test_one_that_cannot_be_published_keeps_no_other_waiting(scheduler: Scheduler):
    """It is put off, with the reason in its row, and published once it can be."""
    made = [{"n": number, "cursed": number % 40 == 7} for number in range(100)]
    orders.publish_many(made, run_after=ago(9))
    topic("other").publish(0, run_after=ago(5))
    with connection.cursor() as cursor:
        cursor.execute(CURSE)
        try:
            assert 0 < tick_until_rest(scheduler) <= 1
        finally:
            cursor.execute(LIFT)
        cursed = [each for each in made if each["cursed"]]
        assert cursed == waiting()
        assert [each for each in made if not each["cursed"]] + [0] == published()
        row = ScheduledMessage.objects.first()
        assert 1 == row.failures
        assert "a curse is on it" in row.error
        assert not scheduled.is_overdue(cursor, OVERDUE)
    ScheduledMessage.objects.update(due_at=ago(0))
    tick_until_rest(scheduler)
    assert cursed == published()[-len(cursed) :]
    assert made[7] == Message.objects.get(payload__n=7).payload


def test_the_scheduler_is_told_of_what_is_due_soon():
    """By a notification after the commit; of what is due later, it finds out."""
    with connect("default", name="tests: hears") as hearing:
        name = channel(hearing.cursor())
        listen(hearing.cursor(), [name])
        with connection.cursor() as cursor:
            orders.publish(1, run_after="1h")
            cursor.execute(
                "SELECT pgqueue_publish('a', '1', run_after => '2200-01-01')"
            )
            assert [] == heard_until_now(hearing, name)
            orders.publish(2, run_after="1s")
            assert ["!schedules"] == heard_until_now(hearing, name)
            cursor.execute("SELECT pgqueue_publish('a', '1', run_after => now())")
            assert cursor.fetchone()[0] < 0
            assert ["!schedules"] == heard_until_now(hearing, name)


def test_drain_publishes_what_is_due_by_the_clock_of_the_test():
    """Also one that a test has stopped: nothing before its moment."""
    subscribe("orders", task="tests.app.tasks.noop")
    with freeze("2026-03-01T12:00Z") as clock:
        orders.publish(1, run_after="1h")
        assert 0 == drain()
        clock.advance("1h")
        assert 1 == drain()
    message = Message.objects.get()
    assert "2026-03-01T13:00:00.000000+00:00" == message.headers["pgqueue.run_after"]
