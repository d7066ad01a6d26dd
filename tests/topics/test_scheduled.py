"""publish(run_after=…): a message waits for its moment, and is published once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DataError, connection, transaction
from django.db.models.functions import Now

from django_pgqueue import (
    acancel_message,
    apublish,
    cancel_message,
    publish,
    publish_many,
    topic,
)
from django_pgqueue.bounds import PUBLISH_TASK
from django_pgqueue.log import publish as storage
from django_pgqueue.models import ArchivedJob, Job, Message, Topic
from django_pgqueue.postgres.connect import connect
from django_pgqueue.testing import drain, freeze
from django_pgqueue.worker.queue_plan import read_plan
from tests.harness.waiting import wait_until_blocked
from tests.log.test_publish import subscribe

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


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def published() -> list[Any]:
    return list(Message.objects.order_by("id").values_list("payload", flat=True))


def waiting() -> list[Any]:
    rows = Job.objects.filter(task=PUBLISH_TASK).order_by("lane_due_at", "id")
    return [job.args[0]["value"]["payload"] for job in rows]


def test_it_waits_for_its_moment_and_nobody_sees_it():
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
        -job_id for job_id in Job.objects.values_list("id", flat=True)
    )
    assert [] == published()
    assert not Topic.objects.exists()
    subscribe("orders", queue="mail")

    assert 1 == drain(queue="pgqueue_messages")

    message = Message.objects.get()
    assert message.id > 0
    assert ("orders.paid", "c7", 1) == (message.name, message.key, message.payload)
    assert {
        "a": 1,
        "pgqueue.run_after": moment.isoformat(),
        "pgqueue.scheduled_id": due,
    } == message.headers
    assert [["mail"], [2, 3, 4, 5]] == [
        [job.queue for job in Job.objects.exclude(task=PUBLISH_TASK)],
        sorted(waiting()),
    ]
    assert not ArchivedJob.objects.exists()  # No second copy of the payload stays.


def test_many_have_moments_of_their_own():
    """Those of one topic are published in the order of these, then of the call."""
    with freeze("2026-03-01T12:00Z") as clock:
        tie = datetime(2026, 3, 1, 12, 3, tzinfo=UTC)
        made = [
            orders.message("orders.late", "second", run_after="2m"),
            orders.message("orders.now", "at once"),
            orders.message("orders.late", "first", run_after="1m"),
        ]
        first = publish_many(made)
        second = orders.publish_many(["x", "y", "z"], run_after=tie)
        assert [False, True, False] == [each > 0 for each in first]
        assert 0 > second[0] > second[1] > second[2]
        assert ["at once"] == published()
        clock.advance("5m")
        # One job is claimed, and takes along what is due behind it.
        assert 1 == drain()
    assert ["at once", "first", "second", "x", "y", "z"] == published()
    assert second == [
        message.headers["pgqueue.scheduled_id"]
        for message in Message.objects.order_by("id")[3:]
    ]
    assert [] == waiting()


def test_it_is_published_as_it_was_stored():
    """Also what Python would round, and a reference to a row that is gone."""
    payload = (
        '{"n": 0.1234567890123456789,'
        ' "of": {"__pgqueue__": "model", "value": "auth.user", "pk": 1, "db": "x"}}'
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_publish('a', %s, run_after => now())", [payload])
        assert cursor.fetchone()[0] < 0
        drain(raise_errors=True)
        cursor.execute("SELECT payload = %s::jsonb FROM pgqueue_message", [payload])
        assert cursor.fetchone()[0]


@pytest.mark.parametrize("run_after", ["NULL", "now()"])
def test_sql_is_refused_what_no_log_takes(run_after):
    """Not only when it is published; headers that are NULL are none."""
    with connection.cursor() as cursor:
        for key, headers in ((None, "[1]"), ("k" * 1_001, "{}")):
            with pytest.raises(DataError, match=r"headers|key"):
                cursor.execute(
                    f"SELECT pgqueue_publish('a', '1', %s, %s, {run_after})",
                    [key, headers],
                )
        cursor.execute(f"SELECT pgqueue_publish('a', '1', 'k', NULL, {run_after})")
    drain(raise_errors=True)
    assert [1] == published()


def test_it_commits_with_its_transaction_or_never_was():
    """What is published at once and later, is all or nothing."""
    with transaction.atomic():
        orders.publish(1, run_after=0)
        publish_many([orders.message(2), orders.message(3, run_after=0)])
        transaction.set_rollback(True)
    assert ([], []) == (published(), waiting())


def test_until_then_it_can_be_cancelled():
    """In a transaction, and once; what is published or was never there is told."""
    first, second = orders.publish_many([1, 2], run_after=0)
    with transaction.atomic():
        assert cancel_message(first)
        transaction.set_rollback(True)
    assert async_to_sync(acancel_message)(first)
    drain()

    assert [2] == published()
    assert [False, False, False] == [
        cancel_message(each) for each in (first, second, -(2**63))
    ]


def test_a_cancel_that_is_open_holds_up_no_other():
    """Its job snoozes, and is published when the cancel has rolled back."""
    first = orders.publish(1, run_after=0)
    topic("other").publish(2, run_after=0)
    with connect("default", name="tests: cancels") as other:
        cursor = other.cursor()
        cursor.execute("BEGIN")
        assert storage.cancel_later(cursor, first)
        # The claim would pass it over, too: it was claimed before the cancel.
        job = Job.objects.get(pk=-first)
        with connection.cursor() as ours:
            assert storage.publish_later(ours, job.pk, with_others=True) is None
        drain()
        assert [2] == published()
        cursor.execute("ROLLBACK")
    drain()
    assert [2, 1] == published()


@pytest.mark.parametrize("commits", [True, False])
def test_a_cancel_waits_for_who_publishes(commits, cursor, other_cursor, new_cursor):
    """It is told what has become of the message: one of the two has had it."""
    first, second = orders.publish_many([1, 2], run_after=0)
    Job.objects.filter(pk=-first).update(visible_at=Now())  # It was claimed.
    with ThreadPoolExecutor(1) as pool:
        with cursor.connection.transaction(force_rollback=not commits):
            assert storage.publish_later(cursor, -first, with_others=True)
            cancelled = pool.submit(storage.cancel_later, other_cursor, second)
            wait_until_blocked(new_cursor(), other_cursor)
        assert commits is (cancelled.result(20) is None)

    assert ([1, 2] if commits else []) == published()


def test_one_that_cannot_be_published_keeps_no_other_waiting():
    """It is tried again, with the reason in its job, and published once it can be."""
    made = [{"n": number, "cursed": number % 7 == 3} for number in range(20)]
    orders.publish_many(made, run_after=0)
    topic("other").publish(0, run_after=0)
    cursed = [each for each in made if each["cursed"]]
    with connection.cursor() as cursor:
        cursor.execute(CURSE)
        try:
            drain()
        finally:
            cursor.execute(LIFT)
    assert [each for each in made if not each["cursed"]] == [
        each for each in published() if each != 0
    ]
    assert cursed == sorted(waiting(), key=itemgetter("n"))
    job = Job.objects.first()
    assert 0 < job.attempt
    assert "a curse is on it" in job.errors[-1]["message"]
    Job.objects.filter(lane_due_at__isnull=False).update(lane_due_at=Now())
    drain()
    assert cursed == sorted(published()[-len(cursed) :], key=itemgetter("n"))
    assert [] == waiting()


def test_every_worker_publishes_whatever_it_serves():
    """But one that is told not to."""
    for queues, is_served in (
        ((), True),
        (("mail",), True),
        (("-mail",), True),
        (("mail", "-pgqueue_messages"), False),
        (("-pgqueue_*",), False),
    ):
        plan = read_plan(queues)
        assert is_served is plan.serves("pgqueue_messages")
    assert ["mail", "pgqueue_messages"] == read_plan(("mail",)).named


def test_drain_publishes_what_is_due_by_the_clock_of_the_test():
    """Also one that a test has stopped: nothing before its moment."""
    subscribe("orders", task="tests.app.tasks.noop")
    with freeze("2026-03-01T12:00Z") as clock:
        orders.publish(1, run_after="1h")
        assert 0 == drain()
        clock.advance("1h")
        assert 2 == drain()  # The job that publishes it, and that of the subscription.
    message = Message.objects.get()
    assert "2026-03-01T13:00:00.000000+00:00" == message.headers["pgqueue.run_after"]
