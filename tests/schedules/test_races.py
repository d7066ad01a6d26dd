"""Races: two schedulers, or a scheduler and a change, at the same tick."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from django_pgqueue import topic
from django_pgqueue.models import Job, Message, Schedule, Tick
from django_pgqueue.postgres.connect import connect
from django_pgqueue.schedules import store
from django_pgqueue.schedules.issue import issue, reckon
from tests.schedules.conftest import NOON, read

MINUTE = timedelta(minutes=1)
ROUNDS = 100
SCHEDULERS = 4

Make = Callable[..., Schedule]
Raw = psycopg.Connection[Any]


@pytest.fixture
def raws(transactional_db: None) -> Iterator[list[Raw]]:
    """A connection for each scheduler."""
    made = [connect("default", name=f"test {n}") for n in range(SCHEDULERS)]
    yield made
    for connection in made:
        connection.close()


def find(raw: Raw) -> store.ScheduleRow:
    with raw.cursor() as cursor:
        (row,) = store.find_all(cursor)
    return row


def issue_on(raw: Raw, row: store.ScheduleRow, now: datetime) -> int:
    with raw.transaction(), raw.cursor() as cursor:
        return len(issue(cursor, row, now))


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """Let each thread begin at the same moment; return what each returned."""
    barrier = threading.Barrier(len(acts))

    def act(what: Callable[[], Any]) -> Any:
        barrier.wait(10)
        return what()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(act, acts))


@pytest.mark.parametrize("publishes", [False, True], ids=["task", "message"])
def test_many_schedulers_that_meet_at_a_tick(
    make: Make, raws: list[Raw], publishes: bool
) -> None:
    """All that have read that it is due try, and one issues one job or message."""
    if publishes:
        make(publication=topic("orders").message("orders.due", {}))
    else:
        make(overlap="queue")
    barrier = threading.Barrier(SCHEDULERS)

    def schedule(raw: Raw) -> Counter[int]:
        issued: Counter[int] = Counter()
        for n in range(1, ROUNDS + 1):
            row = find(raw)
            barrier.wait(10)  # All have read it before the first one writes.
            issued[n] += issue_on(raw, row, NOON + n * MINUTE)
            barrier.wait(10)
        return issued

    with ThreadPoolExecutor(SCHEDULERS) as pool:
        found = list(pool.map(schedule, raws))
    assert sum(found, Counter()) == Counter(range(1, ROUNDS + 1))
    wanted = [NOON + n * MINUTE for n in range(1, ROUNDS + 1)]
    ticks = Tick.objects.order_by("due_at")
    assert [tick.due_at for tick in ticks] == wanted
    issued = Message if publishes else Job
    ids = [tick.message_id if publishes else tick.job_id for tick in ticks]
    assert sorted(ids) == list(
        issued.objects.order_by("pk").values_list("pk", flat=True)
    )


def test_no_tick_of_the_old_times_comes_after_an_edit(
    make: Make, raws: list[Raw]
) -> None:
    """A tick that meets an edit is issued by the old timetable before it, or never."""
    make(overlap="queue", expression="* * * * *")
    for n in range(1, 31):
        row = find(raws[0])
        now = NOON + n * MINUTE

        def edit() -> None:
            with raws[1].transaction(), raws[1].cursor() as cursor:
                (taken,) = store.take(cursor, ["nightly"])
                values = {name: getattr(taken, name) for name in store.COLUMNS}
                store.change(cursor, taken, {**values, "expression": "0 3 * * *"})

        at_once(lambda r=row, t=now: issue_on(raws[0], r, t), edit)
        edited = read("nightly")
        assert edited.next_tick is None
        late = Tick.objects.filter(ticked_at__gt=edited.ticks_from)
        assert not late.exists()
        # What was read before the edit does nothing any more.
        assert issue_on(raws[0], row, now) == 0
        with raws[0].cursor() as cursor:
            reckon(cursor, edited)
        assert read("nightly").next_tick is not None
        Schedule.objects.update(
            expression="* * * * *", ticks_from=NOON, last_tick=now, revision=n * 10
        )


def test_a_clock_that_is_fast_issues_nothing_early(make: Make, raws: list[Raw]) -> None:
    """The server says whether a tick is due, whatever a scheduler takes for now."""
    make(ticks_from=NOON.replace(year=2100), overlap="queue")
    row = find(raws[0])
    assert issue_on(raws[0], row, row.ticks_from + MINUTE) == 0
    assert read("nightly") == row


def test_a_server_whose_clock_was_put_back(make: Make, raws: list[Raw]) -> None:
    """Ticks wait until its clock is where it was: none comes twice, none early."""
    make(overlap="queue", catch_up="all(1000)")
    assert issue_on(raws[0], find(raws[0]), NOON + 60 * MINUTE) == 60
    for back in (60, 30, 1, 0):
        row = find(raws[0])
        assert issue_on(raws[0], row, NOON + (60 - back) * MINUTE) == 0
        assert find(raws[0]) == row
    assert issue_on(raws[0], find(raws[0]), NOON + 61 * MINUTE) == 1
    assert Job.objects.count() == 61
    assert (
        Counter(Tick.objects.values_list("due_at", flat=True)).most_common(1)[0][1] == 1
    )
    row = read("nightly")
    assert (row.last_tick, row.next_tick) == (NOON + 61 * MINUTE, NOON + 62 * MINUTE)
