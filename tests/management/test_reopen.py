"""`manage.py pgqueue reopen`: publishing goes on after a clock that was days ahead."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from django_pgqueue.log import days
from django_pgqueue.log.closed_days import closed_days
from django_pgqueue.log.days import LOG, close_days, guard_name
from django_pgqueue.management.cli import reopen
from django_pgqueue.models import LogDay
from django_pgqueue.topics.publish import publish
from tests.log.log import batch as read_batch
from tests.log.log import make_group, make_topic, payloads, put, take
from tests.management.test_doctor import examined
from tests.management.test_pgqueue import DONE, NOTHING, run, told

DAY = timedelta(days=1)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    """Nobody reads who has to forget something, but for what a test says."""
    monkeypatch.setattr(reopen, "FORGOTTEN_SECONDS", 0.0)


@pytest.fixture
def today(log_days):
    """The day that it is; the log has its usual days after the test."""
    return log_days(0)


def close_early(cursor, day):
    """Close a day as a leader does whose database has a clock that is ahead."""
    cursor.execute(days.HIGHEST)
    (highest,) = cursor.fetchone()
    cursor.execute(
        f"ALTER TABLE {LOG.name_of(day)} ADD CONSTRAINT {guard_name(day)}"
        f" CHECK (id <= {highest}) NOT VALID"
    )
    LogDay.objects.create(day=day, last_id=highest)


@pytest.fixture
def early(cursor, today):
    """Today and tomorrow, which are closed; constraints go with the test."""
    early = [today, today + DAY]
    for day in early:
        close_early(cursor, day)
    yield early
    for day in early:
        cursor.execute(
            f"ALTER TABLE {LOG.name_of(day)} DROP CONSTRAINT IF EXISTS"
            f" {guard_name(day)}"
        )


def test_publishing_goes_on(early, cursor, log_days):
    """After the command; days that are over stay closed."""
    over = log_days(1)
    LogDay.objects.create(day=over, last_id=0)
    with pytest.raises(Exception, match=guard_name(early[0])):
        publish("orders", 1)

    status, out, err = run("reopen")

    assert DONE == status
    assert f"published again into {early[0]}, {early[1]}." in out
    assert "Readers forget that" in err
    assert publish("orders", 1)
    assert [over] == [day for day, _last_id in closed_days(cursor).closed]


def test_a_reader_that_has_a_batch_reads_it_again(early, cursor):
    """It may have looked away from the day; what was published since is not skipped."""
    topic = make_topic()
    group = make_group(cursor)
    early_id = LogDay.objects.get(day=early[0]).last_id
    cursor.execute(
        "UPDATE pgqueue_position SET leased_by = 'w', fence = 7,"
        " leased_until = clock_timestamp() + '1 hour'"
    )
    run("reopen")

    (message,) = put(cursor, "a")
    assert message > early_id
    claimed = take(cursor, group)
    assert 9 == claimed.fence
    assert ["a"] == payloads(read_batch(cursor, claimed))
    assert topic.pk


def test_what_a_crash_left_half_reopened_is_found(early, cursor):
    """Its row is gone, and messages are still refused."""
    days.forget_early(cursor, early)
    assert early == days.closed_early(cursor)

    assert (DONE, [str(day) for day in early]) == (
        (answer := told("reopen"))[0],
        answer[1]["reopened"],
    )
    assert [] == days.closed_early(cursor)


def test_there_may_be_nothing_to_reopen(cursor, today, log_days):
    """Days that are over are none of it."""
    log_days(1)
    close_days(cursor)

    status, out, _ = run("reopen")
    assert NOTHING == status
    assert "No day of the log is closed that is not over" in out
    assert 1 == LogDay.objects.count()


def test_the_doctor_tells(early):
    """It is an error: nobody can publish."""
    status, found = examined()
    finding = found["log_early"]

    assert 1 == status
    assert ("error", [str(day) for day in early]) == (
        finding["severity"],
        finding["value"],
    )
    assert "pgqueue reopen" in finding["way_out"]
    assert json.dumps(finding)
