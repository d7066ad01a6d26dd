"""Scheduler: the loop of a worker that issues what is due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_pgqueue import signals
from django_pgqueue.models import Job, Schedule
from django_pgqueue.postgres.connect import Link
from django_pgqueue.worker.scheduler import LOOK_SECONDS, REST_SECONDS, Scheduler
from tests.schedules.conftest import read

Make = Callable[..., Schedule]

MINUTE = timedelta(minutes=1)


@pytest.fixture
def scheduler(transactional_db: None) -> Iterator[Scheduler]:
    """A scheduler of a worker that leads; its loop is turned by hand."""
    made = Scheduler(Link("default", name="test"))
    made.set_leading(True)
    yield made
    made.link.drop()


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def test_it_issues_what_is_due(make: Make, scheduler: Scheduler) -> None:
    """A tick is a job and a signal; the next look is when the next one is due."""
    told: list[dict[str, Any]] = []

    def hear(sender: Any, **fields: Any) -> None:
        told.append(fields)

    make(ticks_from=now() - MINUTE, every_seconds=60)
    signals.schedule_ticked.connect(hear)
    try:
        pause = scheduler.tick()
    finally:
        signals.schedule_ticked.disconnect(hear)
    job = Job.objects.get()
    assert [(each["schedule"], each["job_id"]) for each in told] == [
        ("nightly", job.id)
    ]
    assert 0 <= pause <= LOOK_SECONDS
    row = read("nightly")
    assert row.next_tick is not None
    assert row.next_tick > now()
    scheduler.tick()
    assert Job.objects.count() == 1


def test_a_worker_that_does_not_lead_rests(make: Make, scheduler: Scheduler) -> None:
    """Unless its heartbeat has found a tick overdue."""
    make(ticks_from=now() - MINUTE)
    scheduler.set_leading(False)
    assert scheduler.tick() == REST_SECONDS
    assert not Job.objects.exists()
    scheduler.stand_in()
    scheduler.tick()
    assert Job.objects.count() == 1


def test_a_next_tick_that_is_wrong_is_reckoned_anew(
    make: Make, scheduler: Scheduler
) -> None:
    """When a zone changes its rules, a stored next tick is too early, or too late."""
    make("early", expression="0 3 1 1 *", ticks_from=now())
    make("late", every_seconds=5, ticks_from=now() - MINUTE)
    Schedule.objects.filter(name="early").update(next_tick=now() - MINUTE)
    Schedule.objects.filter(name="late").update(next_tick=now() + 60 * MINUTE)
    scheduler.tick()
    assert read("early").next_tick is not None
    assert str(read("early").next_tick).endswith("-01-01 03:00:00+00:00")
    assert [job.schedule_id for job in Job.objects.all()] == [read("late").id]
    # Later on, one that is too early is found when it seems to be due.
    Schedule.objects.filter(name="early").update(next_tick=now() - MINUTE)
    scheduler.tick()
    assert str(read("early").next_tick).endswith("-01-01 03:00:00+00:00")


def test_one_that_cannot_be_issued_is_put_off(
    make: Make, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    """A schedule whose job the database refuses keeps no other one waiting."""
    make("bad", ticks_from=now() - 2 * MINUTE)
    make("good", ticks_from=now() - MINUTE)
    Schedule.objects.filter(name="bad").update(priority=30_000)
    pause = scheduler.tick()
    assert [job.schedule_id for job in Job.objects.all()] == [read("good").id]
    assert "failed     schedule=bad" in caplog.text
    assert pause > 0
    caplog.clear()
    scheduler.tick()
    assert caplog.text == ""


def test_one_that_nobody_can_read_says_why(make: Make, scheduler: Scheduler) -> None:
    """It gets an error and is left alone until somebody changes it."""
    make(ticks_from=now() - MINUTE, expression="* * * * *")
    Schedule.objects.update(tz="Mars/Olympus")
    scheduler.tick()
    assert "Mars/Olympus" in str(read("nightly").error)
    Schedule.objects.update(tz="UTC", error=None, revision=1)
    scheduler.tick()
    assert Job.objects.count() == 1
