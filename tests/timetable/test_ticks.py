"""Ticks: the documented policy on every kind of clock change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_pgqueue.timetable.expression import Expression
from django_pgqueue.timetable.ticks import Cron, Every, next_change, offset, ticks

# A zone, the day of a change, and the day after it.
CHANGES = {
    "Berlin forward": ("Europe/Berlin", "2026-03-29"),
    "Berlin back": ("Europe/Berlin", "2026-10-25"),
    "New York forward": ("America/New_York", "2026-03-08"),
    "New York back": ("America/New_York", "2026-11-01"),
    "Lord Howe forward": ("Australia/Lord_Howe", "2026-10-04"),
    "Lord Howe back": ("Australia/Lord_Howe", "2026-04-05"),
    "Apia without a day": ("Pacific/Apia", "2011-12-30"),
    "Sao Paulo forward": ("America/Sao_Paulo", "2018-11-04"),
    "Sao Paulo back": ("America/Sao_Paulo", "2018-02-17"),
    "Casablanca forward": ("Africa/Casablanca", "2026-03-22"),
    "Casablanca back": ("Africa/Casablanca", "2026-02-15"),
}


def due(text: str, zone: str, day: str, days: int = 1) -> list[str]:
    """Return the ticks of local days, as the clock shows them, with its offset."""
    place = ZoneInfo(zone)
    start = datetime.fromisoformat(day).replace(tzinfo=place).astimezone(UTC)
    last = datetime.fromisoformat(day) + timedelta(days=days)
    end = last.replace(tzinfo=place).astimezone(UTC)
    second = timedelta(seconds=1)
    found = ticks(Cron(Expression.parse(text), place), start - second, end - second)
    return [f"{tick.astimezone(place):%d %H:%M%z}" for tick in found]


@pytest.mark.parametrize(
    "change,text,expected",
    [
        # 02:00 to 03:00 is left out.
        ("Berlin forward", "30 2 * * *", ["29 03:00+0200"]),
        ("Berlin forward", "0 2 * * *", ["29 03:00+0200"]),
        ("Berlin forward", "0 3 * * *", ["29 03:00+0200"]),
        ("Berlin forward", "59 1 * * *", ["29 01:59+0100"]),
        # Several of one gap are one, and one with what is due then anyway.
        ("Berlin forward", "*/20 2 * * *", ["29 03:00+0200"]),
        ("Berlin forward", "0,30 2,3 * * *", ["29 03:00+0200", "29 03:30+0200"]),
        # 02:00 to 03:00 comes twice: the first time only.
        ("Berlin back", "30 2 * * *", ["25 02:30+0200"]),
        ("Berlin back", "0 3 * * *", ["25 03:00+0100"]),
        ("Berlin back", "*/30 2 * * *", ["25 02:00+0200", "25 02:30+0200"]),
        ("New York forward", "30 2 * * *", ["08 03:00-0400"]),
        ("New York back", "30 1 * * *", ["01 01:30-0400"]),
        # Half an hour.
        ("Lord Howe forward", "15 2 * * *", ["04 02:30+1100"]),
        ("Lord Howe forward", "45 2 * * *", ["04 02:45+1100"]),
        ("Lord Howe back", "45 1 * * *", ["05 01:45+1100"]),
        ("Lord Howe back", "15 2 * * *", ["05 02:15+1030"]),
        # Midnight itself.
        ("Sao Paulo forward", "0 0 * * *", ["04 01:00-0200"]),
        ("Sao Paulo back", "30 23 * * *", ["17 23:30-0200"]),
        ("Casablanca back", "30 2 * * *", ["15 02:30+0100"]),
        ("Casablanca forward", "30 2 * * *", ["22 03:00+0100"]),
    ],
)
def test_fixed_hours_are_due_once_a_day(change, text, expected):
    """In the gap right after it, and in the overlap the first time only."""
    assert expected == due(text, *CHANGES[change])


@pytest.mark.parametrize("change", CHANGES)
def test_every_minute_has_one_tick_through_every_change(change):
    """Minutes of elapsed time count, however the clock moves."""
    name, day = CHANGES[change]
    zone = ZoneInfo(name)
    before = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=1)
    start = next_change(zone, before, before + timedelta(days=3)) - timedelta(hours=2)

    found = ticks(
        Cron(Expression.parse("* * * * *"), zone), start, start + timedelta(hours=4)
    )

    assert [start + n * timedelta(minutes=1) for n in range(1, 241)] == list(found)


def test_a_day_that_a_zone_leaves_out_is_a_gap():
    """What was due on it is due once, at the first moment of the next one."""
    assert [
        "29 10:00-1000",
        "31 00:00+1400",
        "31 10:00+1400",
        "01 10:00+1400",
    ] == due("0 10 * * *", "Pacific/Apia", "2011-12-29", days=4)


@pytest.mark.parametrize(
    "change,text,expected",
    [
        (
            "Berlin forward",
            "0 * * * *",
            ["00", "01", *(f"{hour:02}" for hour in range(3, 24))],
        ),
        (
            "Berlin back",
            "0 * * * *",
            ["00", "01", "02", "02", *(f"{hour:02}" for hour in range(3, 24))],
        ),
        (
            "Berlin forward",
            "30 */2 * * *",
            [f"{h:02}" for h in range(0, 24, 2) if h - 2],
        ),
        (
            "Berlin back",
            "30 */2 * * *",
            ["00", "02", *(f"{hour:02}" for hour in range(2, 24, 2))],
        ),
        (
            "Lord Howe back",
            "45 * * * *",
            ["00", "01", "01", *map("{:02}".format, range(2, 24))],
        ),
    ],
)
def test_open_hours_follow_elapsed_time(change, text, expected):
    """Not at times that were skipped; twice at those that come twice."""
    assert expected == [tick[3:5] for tick in due(text, *CHANGES[change])]


FIELD = st.sampled_from(["0", "30", "*/7", "1-40/13", "15,45", "*"])
HOUR = st.sampled_from(["*", "*/2", "*/5", "0", "1", "2", "3", "1-3", "0,2,23", "0-23"])
DAY = st.sampled_from(["*", "*", "29", "1-7", "30"])


@settings(max_examples=40, deadline=None)
@given(FIELD, HOUR, DAY, st.sampled_from(list(CHANGES)), st.integers(-40, 50))
def test_ticks_are_those_of_a_minute_by_minute_look(minute, hour, day, change, hours):
    """The policy, said a second time as plainly as can be."""
    zone, when = CHANGES[change]
    place = ZoneInfo(zone)
    start = datetime.fromisoformat(when).replace(tzinfo=UTC) + timedelta(hours=hours)
    end = start + timedelta(hours=30)
    expression = Expression.parse(f"{minute} {hour} {day} * *")

    found = list(ticks(Cron(expression, place), start, end))

    assert looked_for(expression, place, start, end) == found


def looked_for(expression, zone, start, end):
    """Go through all minutes of elapsed time, with a note of what the clock showed."""
    minute = timedelta(minutes=1)
    # A day that was left out is as long as a gap can be.
    moment = start - timedelta(hours=26)
    wall = moment.astimezone(zone).replace(tzinfo=None)
    due_walls = set()
    for time in expression.times(wall - minute):
        if time > wall + timedelta(days=6):
            break
        due_walls.add(time)
    shown, found = set(), []
    last = wall - minute
    while moment <= end:
        wall = moment.astimezone(zone).replace(tzinfo=None)
        if expression.follows_time:
            is_due = wall in due_walls
        else:
            skipped = {last + n * minute for n in range(1, int((wall - last) / minute))}
            is_due = bool(due_walls & (skipped | {wall}) - shown)
            shown |= skipped | {wall}
        if is_due and moment > start:
            found.append(moment)
        last = wall
        moment += minute
    return found


# Intervals ---------------------------------------------------------------------------


def test_intervals_are_counted_from_one_moment_for_all():
    """Whoever asks, and whenever."""
    every = Every(timedelta(seconds=7))
    at = datetime(2026, 10, 25, 0, 59, 59, 500_000, tzinfo=UTC)

    first = every.next_after(at)
    assert at < first <= at + timedelta(seconds=7)
    assert first + timedelta(seconds=7) == every.next_after(first)
    assert first == every.next_after(first - timedelta(microseconds=1))


# Changes -----------------------------------------------------------------------------


def test_the_change_is_found_to_the_second():
    """Nearest to the moment that was asked for, and none after the last one."""
    zone = ZoneInfo("Europe/Berlin")
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)

    change = next_change(zone, start, end)

    assert datetime(2026, 3, 29, 1, tzinfo=UTC) == change
    assert timedelta(hours=1) == offset(zone, change - timedelta(seconds=1))
    assert next_change(zone, start, change - timedelta(seconds=1)) is None
    assert next_change(zone, start, change) == change
    assert next_change(UTC, start, end) is None
