"""A clock that jumps ahead: nothing is closed, removed or refused because of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.conf import parse
from django_pgqueue.log.days import close_days
from django_pgqueue.models import (
    ArchivedJob,
    Clock,
    DeadLetter,
    LogDay,
    Message,
    Worker,
)
from django_pgqueue.pipeline import exports
from django_pgqueue.worker.chores import clock_keeper
from django_pgqueue.worker.chores.clock_keeper import ClockKeeper
from django_pgqueue.worker.chores.purger import CLOSED_AFTER, chores
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_message,
    make_topic,
)

DAY = timedelta(days=1)
JUMP = 3 * DAY


class Time:
    """A monotonic clock that tests move."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        """Return it."""
        return self.now


@pytest.fixture
def time(monkeypatch):
    """What the keeper measures with."""
    time = Time()
    monkeypatch.setattr(clock_keeper, "time", time)
    return time


@pytest.fixture
def jump(cursor):
    """
    A function: the clock of the database was so far behind a moment ago.

    As it looks after a jump ahead. What is of today by the trusted clock is then of
    days ago by the database's.
    """

    def jump(by):
        Clock.objects.all().delete()
        Clock.objects.create(trusted_at=datetime.now(UTC) - by)

    yield jump
    Clock.objects.all().delete()


@pytest.fixture
def lead(link, time):
    """A function: the chores of a leader, as often as they are due in a time."""

    def lead(minutes, **retention):
        found = chores(parse({"RETENTION": retention}))
        for _ in range(minutes + 1):
            for chore in found:
                chore(link)
            time.now += 60

    return lead


def test_a_jump_for_minutes_closes_no_day(jump, lead, log_days):
    """Those that were days to come a moment ago, and the day that it was."""
    for days_ago in (3, 2, 1):
        log_days(days_ago)
    jump(JUMP)

    lead(5)

    assert [] == list(LogDay.objects.all())


def test_a_jump_for_minutes_removes_nothing(
    jump, lead, cursor, link, log_days, archive_days
):
    """Messages and archived jobs of days that were young, dead letters, workers."""
    for days_ago in (3, 2):
        log_days(days_ago)
    old = make_message(make_topic(), 2)
    close_days(cursor)
    Worker.objects.create(
        name="w", hostname="h", pid=1, queues=[], threads=1, version="1"
    )
    Worker.objects.update(heartbeat_at=datetime.now(UTC) - JUMP)
    letter = make_dead_letter(finished_at=-90 * DAY - timedelta(hours=1))
    day = datetime.now(UTC).date() - 2 * DAY
    cursor.execute("SELECT pgqueue_make_archive_day(%s)", [day])
    archived = make_archived_job(finished_at=-2 * DAY)
    jump(JUMP)

    lead(2, log="1d", archive="1d")

    assert [old.pk] == list(Message.objects.values_list("pk", flat=True))
    assert [letter.pk] == list(DeadLetter.objects.values_list("pk", flat=True))
    assert [archived.pk] == list(ArchivedJob.objects.values_list("pk", flat=True))
    assert 1 == Worker.objects.count()


def test_a_jump_for_minutes_ends_no_day_of_the_archive(jump, cursor, archive_days):
    """So no day is exported before it is over."""
    day = datetime.now(UTC).date() - 2 * DAY
    cursor.execute("SELECT pgqueue_make_archive_day(%s)", [day])
    assert day in exports.ended_days(cursor)
    jump(JUMP)

    assert day not in exports.ended_days(cursor)


def test_time_that_has_passed_is_made_up_for(
    jump, link, cursor, time, log_days, caplog
):
    """As after days without a worker: a day in an hour, and it is told."""
    caplog.set_level("WARNING", "django_pgqueue.worker")
    early, late = log_days(5), log_days(2)
    jump(4 * DAY)
    keeper = ClockKeeper()

    def closed_after(minutes):
        for _ in range(minutes):
            keeper(link)
            time.now += 60
        return close_days(cursor, margin=CLOSED_AFTER)

    assert [early] == closed_after(61)
    assert [late] == closed_after(200)
    assert 4 == sum("has jumped" in line for line in caplog.messages)


def test_the_keeper_believes_what_it_has_measured(jump, link, time):
    """Its first look measures nothing, and a look a day later little."""
    jump(2 * DAY)
    keeper = ClockKeeper()
    keeper(link)
    time.now += 86_400
    keeper(link)

    behind = datetime.now(UTC) - Clock.objects.get().trusted_at
    assert 47 * timedelta(hours=1) < behind < 2 * DAY
