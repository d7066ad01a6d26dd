"""freeze(): a clock that stands still for the jobs and for Django."""

from __future__ import annotations

import re
import threading
from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import connection, connections
from django.db.models.functions import Now
from django.test import TestCase
from django.utils import timezone
from django.utils.timezone import now as imported_now

from django_pgqueue import Retry, Snooze, task
from django_pgqueue.models import ArchivedJob, Job
from django_pgqueue.postgres.clock import with_moment
from django_pgqueue.testing import assert_enqueued, drain, freeze
from django_pgqueue.topics.captured import Captured
from tests.app.models import Order
from tests.app.tasks import make_order, noop

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
LEAP_DAY = datetime(2028, 2, 29, 12, tzinfo=UTC)
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
LITERAL = "('2026-01-02T03:04:05.000006+00:00'::timestamptz)"


def server_now(alias="default"):
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


class AsAUserWritesIt(TestCase):
    """In a plain TestCase."""

    def test_a_scheduled_job_runs_when_its_time_has_come(self):
        """And not a moment earlier."""
        with freeze() as clock:
            make_order.using(run_after="1h").delay("later")
            assert_enqueued(make_order, run_after=clock.now + HOUR)
            clock.advance("59m")
            assert 0 == drain()
            clock.advance(60)
            assert 1 == drain()

        assert "later" == Order.objects.get().name


# What stands still -------------------------------------------------------------------


def test_time_does_not_pass():
    """Neither for Django, nor for SQL through its connections."""
    with freeze() as clock:
        threading.Event().wait(0.01)
        moments = {
            timezone.now(),
            imported_now(),
            server_now(),
            clock.now,
            Job.objects.create(task="x", run_after=Now()).run_after
            or Job.objects.get(task="x").run_after,
        }
        assert 1 == len({moment for moment in moments if isinstance(moment, datetime)})
        assert timezone.localdate() == clock.now.date()

    assert timezone.now() > clock.now
    assert server_now() > clock.now


def test_it_is_moved_by_hand():
    """By a duration, or to a moment, earlier or later."""
    with freeze(LEAP_DAY) as clock:
        assert LEAP_DAY + HOUR == clock.advance("1h") == clock.now
        assert LEAP_DAY + 2 * HOUR == clock.advance(HOUR) == timezone.now()
        assert LONG_AGO == clock.move_to(LONG_AGO) == server_now()
        assert date(2001, 1, 1) == timezone.localdate()
        with pytest.raises(ValueError, match=r"advance\(…\) is 'soon'"):
            clock.advance("soon")
        with pytest.raises(ValueError, match="Invalid isoformat"):
            clock.move_to("soon")
        assert LONG_AGO == clock.now


@pytest.mark.django_db(transaction=True)
def test_connections_opened_meanwhile_are_told_too():
    """In other threads, or after a reconnect; and no longer, afterwards."""
    found = []

    def look():
        found.append(server_now())
        connection.close()

    with freeze(LONG_AGO):
        connection.close()
        found.append(server_now())
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    assert [LONG_AGO, LONG_AGO] == found
    assert [Captured] == [*map(type, connection.execute_wrappers)]
    assert server_now() > LONG_AGO


# Jobs --------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [None, LONG_AGO, LEAP_DAY], ids=["now", "ago", "ahead"])
def test_a_job_is_due_when_it_is_enqueued(at):
    """Whatever time it is, and its row says that time."""
    with freeze(at) as clock:
        result = noop.delay()
        row = Job.objects.get()
        assert ("ready", clock.now, clock.now, None) == (
            result.status,
            row.enqueued_at,
            row.visible_at,
            row.run_after,
        )
        assert 1 == drain()
        done = ArchivedJob.objects.get()

    assert "succeeded" == result.refresh().status
    assert (clock.now, clock.now) == (done.enqueued_at, done.finished_at)


def test_retries_come_when_they_are_due():
    """With the back-off that the policy says, counted from the frozen failure."""

    @task(
        name="fails regularly",
        retries=Retry(max_attempts=3, backoff="linear", base="10m", jitter="none"),
    )
    def fails_regularly():
        raise ZeroDivisionError

    result = fails_regularly.delay()
    with freeze() as clock:
        failed = clock.now
        ran = [int(drain())]
        for step in ("9m", "1m", "19m", "1m"):
            clock.advance(step)
            ran.append(int(drain()))
        assert "dead" == result.refresh().status
        at = [datetime.fromisoformat(error["at"]) for error in result.errors]

    assert [1, 0, 1, 0, 1] == ran
    assert [0, 10, 30] == [
        round((moment - failed) / timedelta(minutes=1)) for moment in at
    ]


def test_snoozes_and_expiry_go_by_it():
    """As everything that has a time."""
    ran = []

    @task(name="sleepy")
    def sleepy():
        ran.append(timezone.now())
        if len(ran) == 1:
            raise Snooze("1d")

    with freeze() as clock:
        sleepy.delay()
        expires = noop.using(expires="1h").delay()
        assert "ready" == expires.status
        drain("other")
        clock.advance("1h")
        assert {"scheduled": 1, "expired": 1} == drain().statuses
        clock.advance("1d")
        drain()

    assert [timedelta(days=1)] == [ran[1] - ran[0]]


# What is sent ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT {now()}",
        "select {NOW ( )}",
        " (SELECT {pg_catalog.now()})",
        "WITH x AS (SELECT {clock_timestamp()}) SELECT 1",
        "UPDATE t SET a = {transaction_timestamp()} WHERE b = %s",
        "INSERT INTO t VALUES ({CURRENT_TIMESTAMP}, {STATEMENT_TIMESTAMP()})",
    ],
)
def test_statements_are_told_the_moment(sql):
    """Wherever they ask for it."""
    asks = sql.replace("{", "").replace("}", "")

    assert re.sub(r"\{.*?\}", LITERAL, sql) == with_moment(asks, MOMENT)
