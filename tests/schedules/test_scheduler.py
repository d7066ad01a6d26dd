"""Scheduler: one schedule that cannot be issued costs the others nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from django_pgqueue import signals
from django_pgqueue.models import Job, Schedule, Tick
from django_pgqueue.schedules import store, ticks
from django_pgqueue.worker.chores.scheduler import (
    LOOK_SECONDS,
    OVERDUE,
    REST_SECONDS,
    Scheduler,
)
from tests.app.tasks import once
from tests.schedules.conftest import go_on, in_back_ticks, read, tick_until_rest

MINUTE = timedelta(minutes=1)
Make = Callable[..., Schedule]

CURSE = """
CREATE FUNCTION curse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.queue = 'cursed' THEN RAISE EXCEPTION 'a curse is on it'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER curse BEFORE INSERT ON pgqueue_job
    FOR EACH ROW EXECUTE FUNCTION curse();
"""
LIFT = "DROP TRIGGER curse ON pgqueue_job; DROP FUNCTION curse()"


def issued() -> list[str]:
    """Return the names of the schedules that have jobs."""
    names = dict(Schedule.objects.values_list("id", "name"))
    return sorted({names[job.schedule_id] for job in Job.objects.all()})


def is_overdue() -> bool:
    with connection.cursor() as cursor:
        return ticks.is_overdue(cursor, OVERDUE)


def test_it_issues_what_is_due(make: Make, scheduler: Scheduler) -> None:
    """A tick is a job and a signal; the next look is when the next one is due."""
    told: list[dict[str, Any]] = []

    def hear(sender: Any, **fields: Any) -> None:
        told.append(fields)

    make(ticks_from=in_back_ticks(1))
    signals.schedule_ticked.connect(hear)
    try:
        assert 0 < tick_until_rest(scheduler) <= LOOK_SECONDS
    finally:
        signals.schedule_ticked.disconnect(hear)
    jobs = list(Job.objects.order_by("id"))
    assert [(each["schedule"], each["job_id"]) for each in told] == [
        ("nightly", job.id) for job in jobs
    ]
    next_tick = read("nightly").next_tick
    assert next_tick is not None
    assert next_tick > datetime.now(UTC) - MINUTE


def test_only_who_is_at_work_issues(make: Make, scheduler: Scheduler) -> None:
    """A worker that does not lead has no connection, and looks at nothing."""
    make(ticks_from=in_back_ticks(1))
    scheduler.set_leading(False)
    assert scheduler.tick() == REST_SECONDS
    assert (issued(), scheduler.link.is_open) == ([], False)
    scheduler.stand_in()
    tick_until_rest(scheduler)
    assert issued() == ["nightly"]


def test_a_tick_that_fails_keeps_no_other(make: Make, scheduler: Scheduler) -> None:
    """What the database refuses is put off and told; the others are issued."""
    make("a cursed one", queue="cursed", ticks_from=in_back_ticks(2))
    make("nightly", ticks_from=in_back_ticks(1))
    with connection.cursor() as cursor:
        cursor.execute(CURSE)
        try:
            assert 0 < tick_until_rest(scheduler) <= 1
        finally:
            cursor.execute(LIFT)
    assert issued() == ["nightly"]
    row = read("a cursed one")
    assert "a curse is on it" in str(row.error)
    assert (row.last_tick, row.has_ticks) == (None, True)
    assert not is_overdue()  # Or all workers would look for ever.
    time_of_next_try = time.monotonic() + 1.0
    while issued() != ["a cursed one", "nightly"]:
        assert time.monotonic() < time_of_next_try + 5
        go_on(scheduler)
    assert read("a cursed one").error is None


def test_a_row_that_is_locked_keeps_no_other(make: Make, scheduler: Scheduler) -> None:
    """A transaction that changes a schedule and stays open holds up that one alone."""
    make("held", ticks_from=in_back_ticks(2))
    make("held and new", ticks_from=in_back_ticks(2))
    make("nightly", ticks_from=in_back_ticks(1))
    Schedule.objects.filter(name="held").update(next_tick=in_back_ticks(1))
    with transaction.atomic():
        Schedule.objects.exclude(name="nightly").update(priority=7)
        pauses = [tick_until_rest(scheduler) for _ in range(3)]
        assert all(0 < pause <= LOOK_SECONDS for pause in pauses)
        assert issued() == ["nightly"]
        rounds = 0
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            go_on(scheduler)
            rounds += 1
    # Ever more seldom: it does not ask all day long.
    assert rounds < 20
    until = time.monotonic() + LOOK_SECONDS + 1
    while len(issued()) < 3:
        assert time.monotonic() < until
        go_on(scheduler)


def test_a_unique_key_of_an_open_transaction_is_waited_for_briefly(
    make: Make, scheduler: Scheduler
) -> None:
    """Other schedules go on; the tick is a duplicate once the transaction commits."""
    make("held", task=once.name, ticks_from=in_back_ticks(2))
    make("nightly", ticks_from=in_back_ticks(1))
    with transaction.atomic():
        assert once.delay().created
        tick_until_rest(scheduler)
        assert read("nightly").last_tick is not None
        assert "lock timeout" in str(read("held").error)
    until = time.monotonic() + 10
    while read("held").last_tick is None:
        assert time.monotonic() < until
        go_on(scheduler)
    assert Tick.objects.get(schedule_id=read("held").id).outcome == "duplicate"


def test_a_next_tick_that_is_wrong_is_reckoned_anew(
    make: Make, scheduler: Scheduler
) -> None:
    """When a zone changes its rules, a stored next tick is too early, or too late."""
    make("early", expression="0 3 1 1 *", ticks_from=datetime.now(UTC))
    make("late", every_seconds=5, ticks_from=in_back_ticks(1))
    Schedule.objects.filter(name="early").update(next_tick=in_back_ticks(1))
    far = datetime.now(UTC) + 60 * MINUTE
    Schedule.objects.filter(name="late").update(next_tick=far)
    tick_until_rest(scheduler)
    assert str(read("early").next_tick).endswith("-01-01 03:00:00+00:00")
    assert issued() == ["late"]
    # Later on, one that is too early is found when it seems to be due.
    Schedule.objects.filter(name="early").update(next_tick=in_back_ticks(1))
    assert 0 < tick_until_rest(scheduler) <= LOOK_SECONDS
    assert str(read("early").next_tick).endswith("-01-01 03:00:00+00:00")


@pytest.mark.parametrize(
    "bad,good",
    [
        ({"tz": "Mars/Olympus"}, {"tz": "UTC"}),
        ({"catch_up": "all(0)"}, {"catch_up": "one"}),
    ],
)
def test_one_that_nobody_can_read_says_why(
    make: Make, scheduler: Scheduler, bad: dict[str, str], good: dict[str, str]
) -> None:
    """It gets an error and is left alone until somebody changes it."""
    make(ticks_from=in_back_ticks(1), expression="* * * * *")
    Schedule.objects.update(**bad)
    assert tick_until_rest(scheduler) == LOOK_SECONDS
    assert all(each in str(read("nightly").error) for each in bad.values())
    Schedule.objects.update(**good, error=None, revision=1)
    tick_until_rest(scheduler)
    assert issued() == ["nightly"]


def test_the_time_zone_of_the_role_changes_nothing(
    make: Make, scheduler: Scheduler
) -> None:
    """Ticks are the same in a session that shows times in another zone."""
    make(catch_up="all(3)", overlap="queue", ticks_from=in_back_ticks(3))
    scheduler.link.connection.execute("SET TimeZone = 'Asia/Kathmandu'")
    tick_until_rest(scheduler)
    since = in_back_ticks(3)
    wanted = [since + n * MINUTE for n in (1, 2, 3)]
    found = sorted(tick.due_at for tick in Tick.objects.all())
    assert found[:3] == wanted
    headers = sorted(str(job.headers["pgqueue.tick"]) for job in Job.objects.all())
    assert headers[:3] == [moment.isoformat() for moment in wanted]


def test_the_hour_that_comes_twice_is_no_step_back(make: Make) -> None:
    """Where a session shows local times, ticks go on from the later moment."""
    # 01:10 in summer time, and 01:05 after the clock was put back: 55 minutes later.
    make(
        ticks_from=datetime(2026, 11, 1, 5, 10, tzinfo=UTC),
        catch_up="all(9)",
        overlap="queue",
    )
    Schedule.objects.update(last_tick=datetime(2026, 11, 1, 6, 5, tzinfo=UTC))
    from django_pgqueue.postgres.connect import Link
    from django_pgqueue.schedules.issue import issue

    link = Link("default", name="test")
    try:
        link.connection.execute("SET TimeZone = 'America/New_York'")
        with link.connection.transaction(), link.cursor() as cursor:
            (row,) = store.find_all(cursor)
            now = datetime(2026, 11, 1, 6, 7, tzinfo=UTC)
            found = issue(cursor, row, now)
    finally:
        link.drop()
    assert [(tick.due_at.minute, tick.missed) for tick in found] == [(6, 0), (7, 0)]
