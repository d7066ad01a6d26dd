"""Issue: a tick becomes a job, once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from django_pgqueue import topic
from django_pgqueue.models import ArchivedJob, Job, Queue, Schedule, Tick
from django_pgqueue.queues.lanes import HINT as LANES_HINT
from django_pgqueue.schedules import store
from django_pgqueue.schedules.issue import issue, reckon, tell
from django_pgqueue.signals import queue_full
from tests.app.lane_tasks import step
from tests.app.tasks import add
from tests.schedules.conftest import NOON, issue_at, read

MINUTE = timedelta(minutes=1)
Make = Callable[..., Schedule]
Raw = psycopg.Connection[Any]


def due_times(name: str = "nightly") -> list[str]:
    """Return the ticks of a schedule with their outcomes, in order."""
    ticks = Tick.objects.filter(schedule_id=read(name).id).order_by("due_at")
    return [f"{tick.due_at:%H:%M} {tick.outcome} {tick.missed}" for tick in ticks]


def test_a_tick_is_a_job_of_the_task(make: Make, raw: Raw) -> None:
    """A tick inserts one job with the schedule's arguments, and refers to it."""
    make(args={"left": 1, "right": 2}, task="tests.app.tasks.add", queue="slow")
    assert issue_at(raw, NOON) == []
    (issued,) = issue_at(raw, NOON + MINUTE)
    job = Job.objects.get()
    assert (job.task, job.kwargs, job.queue, job.schedule_id, job.run_after) == (
        "tests.app.tasks.add",
        {"left": 1, "right": 2},
        "slow",
        read("nightly").id,
        None,
    )
    assert job.headers == {"pgqueue.tick": "2026-03-01T12:01:00+00:00"}
    tick = Tick.objects.get()
    assert (tick.job_id, tick.due_at) == (job.id, NOON + MINUTE)
    assert (issued.job_id, issued.due_at) == (job.id, NOON + MINUTE)
    row = read("nightly")
    assert (row.last_tick, row.next_tick) == (NOON + MINUTE, NOON + 2 * MINUTE)


def test_a_tick_is_issued_once(make: Make, raw: Raw) -> None:
    """Who has read the row before another one's tick issues nothing."""
    make(overlap="queue")
    before = read("nightly")
    assert len(issue_at(raw, NOON + MINUTE)) == 1
    with raw.transaction(), raw.cursor() as cursor:
        assert issue(cursor, before, NOON + MINUTE) == []
    assert Job.objects.count() == 1


def test_a_tick_is_stored_in_a_full_queue_and_told(
    make: Make, raw: Raw, settings: Any
) -> None:
    """It comes once, so it is neither refused nor waits; whatever the settings say."""
    settings.PGQUEUE = {"QUEUES": {"slow": {"depth_max": 3, "on_full": "block"}}}
    Queue.objects.create(name="slow", depth=4, depth_at=datetime.now(UTC))
    said = {"args": {"left": 1, "right": 2}, "queue": "slow", "overlap": "queue"}
    make(task="tests.app.tasks.add", **said)
    heard: list[dict[str, Any]] = []

    def hear(signal: Any, **fields: Any) -> None:
        heard.append(fields)

    queue_full.connect(hear)
    try:
        (issued,) = issue_at(raw, NOON + MINUTE)
        tell(issued, late_seconds=0.0)
        Queue.objects.update(depth=2)
        (issued,) = issue_at(raw, NOON + 2 * MINUTE)
        tell(issued, late_seconds=0.0)
    finally:
        queue_full.disconnect(hear)
    assert Job.objects.count() == 2
    told = {"queue": "slow", "depth": 4, "depth_max": 3, "jobs": 1}
    assert heard == [{"sender": add, **told, "on_full": "signal"}]


def test_a_rollback_takes_tick_and_job(make: Make, raw: Raw) -> None:
    """When the transaction of a tick fails, the tick is due as before."""
    make()
    row = read("nightly")
    with raw.transaction(force_rollback=True), raw.cursor() as cursor:
        assert len(issue(cursor, row, NOON + MINUTE)) == 1
    assert (Job.objects.count(), Tick.objects.count()) == (0, 0)
    assert read("nightly") == row
    assert len(issue_at(raw, NOON + MINUTE)) == 1


@pytest.mark.parametrize(
    "catch_up,late,expected",
    [
        ("one", 0, ["12:10 enqueued 9"]),
        ("skip", 0, ["12:10 enqueued 9"]),
        ("one", 59, ["12:10 enqueued 9"]),
        ("all(3)", 0, ["12:08 enqueued 7", "12:09 enqueued 0", "12:10 enqueued 0"]),
    ],
)
@pytest.mark.parametrize("publishes", [False, True], ids=["task", "message"])
def test_after_ten_ticks_without_a_scheduler(
    make: Make, raw: Raw, catch_up: str, late: int, expected: list[str], publishes: bool
) -> None:
    """Of ten due ticks, exactly those that the policy says become jobs or messages."""
    issues: dict[str, Any] = {"overlap": "queue"}
    if publishes:
        issues = {"publication": topic("orders").message("orders.due", {})}
        expected = [tick.replace("enqueued", "published") for tick in expected]
    make(catch_up=catch_up, **issues)
    issue_at(raw, NOON + 10 * MINUTE + timedelta(seconds=late))
    assert due_times() == expected
    issue_at(raw, NOON + 10 * MINUTE + timedelta(seconds=late))
    assert due_times() == expected


@pytest.mark.parametrize(
    "catch_up,expected",
    [("skip", ["13:00 missed 1"]), ("one", ["13:00 enqueued 0"])],
)
def test_a_tick_that_is_late_by_itself(
    make: Make, raw: Raw, catch_up: str, expected: list[str]
) -> None:
    """Over a minute late, a tick is missed with skip, and made up for with one."""
    make(catch_up=catch_up, every_seconds=3_600)
    issue_at(raw, NOON + timedelta(hours=1, seconds=61))
    assert due_times() == expected
    assert read("nightly").next_tick == NOON + timedelta(hours=2)


def test_overlap_skip(make: Make, raw: Raw) -> None:
    """With skip, a tick makes no job while the one before it is not done."""
    make()
    (first,) = issue_at(raw, NOON + MINUTE)
    (second,) = issue_at(raw, NOON + 2 * MINUTE)
    assert (second.outcome, second.job_id) == ("overlap", None)
    Job.objects.filter(pk=first.job_id).delete()
    (third,) = issue_at(raw, NOON + 3 * MINUTE)
    assert third.outcome == "enqueued"
    assert due_times() == ["12:01 enqueued 0", "12:02 overlap 0", "12:03 enqueued 0"]


def test_a_paused_schedule_has_no_ticks(make: Make, raw: Raw) -> None:
    """A pause ends at once, and what was due meanwhile is not made up for."""
    make(catch_up="all(9)", overlap="queue")
    before = read("nightly")
    with raw.cursor() as cursor:
        assert store.pause(cursor, "nightly", by="ann", reason="night off")
        assert not store.pause(cursor, "nightly", by="bob")
    with raw.transaction(), raw.cursor() as cursor:
        assert issue(cursor, before, NOON + MINUTE) == []
    assert issue_at(raw, NOON + MINUTE) == []
    assert (read("nightly").paused_by, read("nightly").pause_reason) == (
        "ann",
        "night off",
    )
    with raw.cursor() as cursor:
        assert store.resume(cursor, "nightly")
        assert not store.resume(cursor, "nightly")
    now = datetime.now(UTC)
    issued = issue_at(raw, now)
    # At most the one of a minute that began between the two.
    assert [tick.due_at for tick in issued] == [
        tick.due_at for tick in issued if tick.due_at > now - timedelta(seconds=30)
    ]


def test_jitter_moves_the_job_and_not_the_tick(make: Make, raw: Raw) -> None:
    """The job of a tick with jitter is due a while after it, each time the same."""
    make(jitter=3_600)
    issue_at(raw, NOON + MINUTE)
    job, tick = Job.objects.get(), Tick.objects.get()
    assert tick.due_at == NOON + MINUTE
    assert job.run_after is not None
    assert timedelta() < job.run_after - tick.due_at < timedelta(hours=1)
    first = job.run_after
    Job.objects.all().delete()
    Tick.objects.all().delete()
    Schedule.objects.update(last_tick=None)
    issue_at(raw, NOON + MINUTE)
    assert Job.objects.get().run_after == first


def test_a_row_that_cannot_be_read_says_so(make: Make, raw: Raw) -> None:
    """A schedule that somebody has written wrongly by hand stops with an error."""
    make()
    Schedule.objects.update(tz="Mars/Olympus", every_seconds=None, expression="@daily")
    row = read("nightly")
    with raw.cursor() as cursor:
        assert reckon(cursor, row)
    assert "Mars/Olympus" in str(read("nightly").error)
    assert read("nightly").next_tick is None
    assert not ArchivedJob.objects.exists()


def test_the_job_of_a_tick_waits_in_its_lane(make: Make, raw: Raw) -> None:
    """As that of a call would, and those who let it through are told."""
    make(task=step.name, args={"customer": "a", "number": 1}, overlap="queue")
    (issued,) = issue_at(raw, NOON + MINUTE)
    job = Job.objects.get()
    assert (job.lane, job.visible_at) == (f"{step.name}:a", None)
    assert LANES_HINT in issued.wakes
