"""Shifts: ticks that a change of the clocks moves, collapses or shows twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.timetable.expression import Expression
from django_pgqueue.timetable.ticks import Cron, Every, shift
from django_pgqueue.timetable.zones import read_zone

# Berlin: forward at 01:00 UTC on 29 March 2026, back at 01:00 UTC on 25 October.
SPRING = datetime(2026, 3, 29, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 23, tzinfo=UTC)


def shifts(expression: str, zone: str, after: datetime, count: int) -> list[str]:
    """Return the next ticks by their clocks, with what was done to them."""
    table = Cron(Expression.parse(expression), read_zone(zone))
    found = []
    tick: datetime | None = after
    for _ in range(count):
        assert tick is not None
        tick = table.next_after(tick)
        assert tick is not None
        mark = shift(table, tick)
        said = "" if mark is None else f" {mark.kind} {mark.collapsed}"
        found.append(f"{tick.astimezone(table.zone):%d %H:%M}{said}")
    return found


@pytest.mark.parametrize(
    "expression,zone,after,expected",
    [
        ("30 2 * * *", "Europe/Berlin", SPRING, ["29 03:00 moved 1", "30 02:30"]),
        ("0 2 * * *", "Europe/Berlin", SPRING, ["29 03:00 moved 1", "30 02:00"]),
        # Three skipped ones and that of three o'clock are one.
        (
            "*/20 2,3 * * *",
            "Europe/Berlin",
            SPRING,
            ["29 03:00 moved 4", "29 03:20", "29 03:40"],
        ),
        ("0 3 * * *", "Europe/Berlin", SPRING, ["29 03:00", "30 03:00"]),
        ("30 * * * *", "Europe/Berlin", SPRING, ["29 01:30", "29 03:30"]),
        ("30 2 * * *", "Europe/Berlin", AUTUMN, ["25 02:30 first 1", "26 02:30"]),
        (
            "30 * * * *",
            "Europe/Berlin",
            AUTUMN,
            ["25 01:30", "25 02:30 first 1", "25 02:30 second 1", "25 03:30"],
        ),
        # A day that Samoa left out.
        (
            "0 6 * * *",
            "Pacific/Apia",
            datetime(2011, 12, 30, tzinfo=UTC),
            ["31 00:00 moved 1", "31 06:00"],
        ),
    ],
)
def test_a_tick_that_a_change_touches_is_marked(expression, zone, after, expected):
    """And no other one."""
    assert expected == shifts(expression, zone, after, len(expected))


def test_by_the_second_a_gap_is_counted_so_far():
    """A page need not count all of them."""
    assert ["29 03:00 moved 100"] == shifts(
        "* 0-59 2 * * *", "Europe/Berlin", SPRING, 1
    )


def test_an_interval_knows_no_clock():
    """Whatever is done to clocks."""
    every = Every(timedelta(minutes=30))
    assert shift(every, SPRING + timedelta(hours=1)) is None
