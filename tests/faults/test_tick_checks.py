"""The tick checks: each finds what it is there for, in evidence made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults import tick_checks
from tests.faults.evidence import Evidence
from tests.faults.history import Change, Row
from tests.faults.schedules import Schedule, Step, Tick
from tests.faults.verdict import Verdict

# A whole hour, so that every period divides it.
BEGAN = 1_800_000_000.0
APPLICATION = "pgqueue scheduler a"


def change(job, due_at, *, ended=False):
    """Return the change that began or ended a job of a tick."""
    row = Row(state="succeeded" if ended else None)
    return Change(
        seq=job,
        at=due_at + (0.5 if ended else 0.1),
        application=APPLICATION,
        transaction="1",
        operation="DELETE" if ended else "INSERT",
        job=job,
        task="tick",
        old=row if ended else None,
        new=None if ended else row,
        schedule=1,
        tick=due_at,
    )


def evidence(ticks, *, name="every second", module="by_the_second", steps=None, **more):
    """Return the evidence of one schedule from BEGAN on, with jobs for its ticks."""
    last = max((tick.due_at for tick in ticks), default=BEGAN)
    values = {"catch_up": "all(1000)", "overlap": "queue", **more}
    if steps is None:
        before = [BEGAN, *(tick.due_at for tick in ticks)]
        steps = [(a, tick.due_at) for a, tick in zip(before, ticks, strict=False)]
    return Evidence(
        schedules=[Schedule(1, name, BEGAN, last, **values)],
        ticks=ticks,
        steps=[Step(1, after + 0.1, a, after, APPLICATION) for a, after in steps],
        changes=[
            each
            for tick in ticks
            if tick.job is not None
            for each in (
                change(tick.job, tick.due_at),
                change(tick.job, tick.due_at, ended=True),
            )
        ],
        measures={"schedules": module, "held_at": last + 0.5, "issued_by": {}},
    )


def tick(n, *, job=0, outcome="enqueued", missed=0):
    """Return the tick of the nth second; job None: it has none."""
    due_at = BEGAN + n
    number = None if job is None else job or n
    return Tick(1, due_at, due_at + 0.1, outcome, number, missed)


GOOD = [tick(n) for n in range(1, 6)]


def found(check, told):
    """Return what a check yields."""
    return list(check(told, Verdict()))


@pytest.mark.parametrize(
    "check,ticks",
    [
        ("ticks_are_exact", [*GOOD[:2], *GOOD[3:]]),
        ("ticks_are_exact", [GOOD[0], tick(2, missed=1), *GOOD[2:]]),
        ("ticks_are_exact", [GOOD[0], tick(2, job=None, outcome="missed"), *GOOD[2:]]),
        ("ticks_are_exact", [*GOOD, tick(5.5)]),
        ("ticks_are_whole", [GOOD[0], tick(2, job=None), *GOOD[2:]]),
        ("ticks_are_due", [*GOOD[:4], GOOD[4]._replace(ticked_at=BEGAN)]),
    ],
)
def test_ticks_that_are_wrong_are_found(check, ticks):
    """Missing, uncounted, without a job, at no moment of the schedule, too early."""
    assert found(getattr(tick_checks, check), evidence(ticks))


def test_a_last_tick_that_moves_back_is_found():
    """Also one that was moved and issued nothing."""
    told = evidence(GOOD)
    back = Step(1, BEGAN + 6, BEGAN + 5, BEGAN + 4, APPLICATION)
    assert found(tick_checks.ticks_move_on, replace(told, steps=[*told.steps, back]))
    (schedule,) = told.schedules
    moved = schedule._replace(last_tick=BEGAN + 9)
    assert found(tick_checks.ticks_are_whole, replace(told, schedules=[moved]))


@pytest.mark.parametrize(
    "name,catch_up,ticks,is_right",
    [
        ("one", "one", [tick(1), tick(12, missed=10)], True),
        ("one", "one", [tick(1), tick(12, missed=9)], False),
        ("one", "one", [tick(1), tick(11), tick(12, missed=9)], False),
        (
            "four",
            "all(4)",
            [tick(1), tick(9, missed=7), *map(tick, (10, 11, 12))],
            True,
        ),
        ("four", "all(4)", [tick(1), *map(tick, (9, 10, 11, 12))], False),
        ("four", "all(4)", [tick(1), tick(10, missed=8), *map(tick, (11, 12))], False),
    ],
)
def test_a_policy_that_is_not_followed_is_found(name, catch_up, ticks, is_right):
    """Of eleven ticks that are due at once: which are issued, and how many missed."""
    told = evidence(
        ticks,
        name=name,
        module="by_policy",
        catch_up=catch_up,
        steps=[(BEGAN, BEGAN + 1), (BEGAN + 1, BEGAN + 12)],
    )
    assert (found(tick_checks.ticks_follow_policy, told) == []) is is_right
    assert tick_checks.caught_up(told, "by_policy") == 1


def test_overlaps_that_are_wrong_are_found():
    """Two jobs beside each other; a tick that was skipped for no job."""
    policy = {"name": "no overlap", "module": "by_policy", "overlap": "skip"}
    told = evidence(GOOD, **policy)
    assert found(tick_checks.overlaps_are_skipped, told) == []
    endless = [c for c in told.changes if (c.job, c.operation) != (1, "DELETE")]
    assert found(tick_checks.overlaps_are_skipped, replace(told, changes=endless))
    skipped = evidence([*GOOD, tick(60, job=None, outcome="overlap")], **policy)
    assert found(tick_checks.overlaps_are_skipped, skipped)
