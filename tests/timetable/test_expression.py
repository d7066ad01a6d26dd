"""Expressions: what is refused, and the times of what is not."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from itertools import islice, product

import pytest

from django_pgqueue.exceptions import ScheduleError
from django_pgqueue.timetable.expression import NAMES, Expression

NOON = datetime.fromisoformat("2026-11-22 12:00")


@pytest.mark.parametrize(
    "text,why",
    [
        ("", "has 0 fields"),
        ("* * * * * * *", "has 7 fields"),
        ("60 * * * *", "'60' for its minute, which is 0 to 59"),
        ("*/0 * * * *", "A step is a number from 1 to 59"),
        ("5-1 * * * *", "runs backwards"),
        ("* * * * fri-mon", "runs backwards"),
        ("5/15 * * * *", "Write '5-59/15'"),
        ("1,,2 * * * *", "'' for its minute"),
        ("0 0 30 2 *", "is never due"),
        ("0 0 31 4,6,9,11 *", "is never due"),
        ("@reboot", "enqueue the task where you deploy"),
        ("@every 5m", "@every(seconds=…)"),
        ("TZ=UTC * * * * *", "'tz=utc' for its second"),
        ("¹ * * * *", "'¹' for its minute"),
        ("* * * * MONL", "'monl' for its day of the week"),
        ("H * * * *", "'h' for its minute"),
        ("? * * * *", "'?' for its minute"),
        ("0 0 15 * 5#3", "Make two schedules of it"),
        (
            ",".join(["1"] * 5_000) + " * * * *",
            "has 10,007 characters; the limit is 255",
        ),
        (None, "not None"),
    ],
)
def test_what_nobody_can_have_meant_is_refused(text, why):
    """With the part that is wrong, and what it could be."""
    with pytest.raises(ScheduleError, match=re.escape(why)):
        Expression.parse(text)


@pytest.mark.parametrize(
    "text,times",
    [
        ("*/20 * * * *", ["22 12:20", "22 12:40", "22 13:00"]),
        ("0 3 * * *", ["23 03:00", "24 03:00"]),
        ("30 */15 * * * *", ["22 12:00:30", "22 12:15:30"]),
        ("*/25 * * * * *", ["22 12:00:25", "22 12:00:50", "22 12:01:00"]),
        ("0 0 L * *", ["30 00:00"]),
        ("0 0 * * mon", ["23 00:00", "30 00:00"]),
        ("0 0 * * 7", ["29 00:00"]),
        ("0 0 * * fri-sun", ["27 00:00", "28 00:00", "29 00:00"]),
        ("0 0 * * mon#4", ["23 00:00"]),
        ("0 0 * * L5", ["27 00:00"]),
        ("0 0 24 * wed", ["24 00:00", "25 00:00"]),  # Either, as everywhere.
        ("0 0 23,27-30 * */2", ["28 00:00", "29 00:00"]),  # Both, since one has a star.
        ("0 0 */9 * sat", ["28 00:00"]),
        ("30 0 0 23,28 * */6", ["28 00:00:30"]),
        ("0 0 * NOV MON-TUE", ["23 00:00", "24 00:00"]),
        ("  0   3 * * *  ", ["23 03:00"]),
        ("@daily", ["23 00:00"]),
        ("@Hourly", ["22 13:00"]),
        ("10-14/2 13 * * *", ["22 13:10", "22 13:12", "22 13:14"]),
        ("0,30-30 9-9 * * *", ["23 09:00", "23 09:30", "24 09:00"]),
        ("59-59/5 23-23/2 * * *", ["22 23:59", "23 23:59"]),
        ("0 0 23-23 nov-nov *", ["23 00:00"]),
        ("0 0 * * sun-sun", ["29 00:00"]),
        ("0 0 * * 7-0", ["29 00:00"]),
    ],
)
def test_times_are_those_of_cron(text, times):
    """By the clock on the wall, after the moment that was given."""
    found = islice(Expression.parse(text).times(NOON), len(times))

    assert [datetime.fromisoformat(f"2026-11-{time}") for time in times] == list(found)


def values(field, least, most):
    """Return what a field means, as entry.c of Vixie's cron reads it."""
    found = set()
    for item in field.split(","):
        of, _, step = item.partition("/")
        first, _, last = of.partition("-")
        ends = (least, most) if of == "*" else (int(first), int(last or first))
        found.update(range(ends[0], ends[1] + 1, int(step or 1)))
    return found


def vixie_days(days, weekdays, start, count):
    """Return the days that Vixie's cron, and so Debian's, takes for due."""
    of_month, of_week = values(days, 1, 31), {d % 7 for d in values(weekdays, 0, 7)}
    both = "*" in (days[0], weekdays[0])
    for day in (start + timedelta(n) for n in range(count)):
        fits = (day.day in of_month, day.isoweekday() % 7 in of_week)
        if all(fits) or (any(fits) and not both):
            yield day


DAYS = ("*", "*/1", "*/2", "*/7", "*/31", "1", "31", "1-7", "1-31", "8-14/3", "1,15,31")
WEEKDAYS = ("*", "*/1", "*/2", "*/6", "*/7", "0", "7", "1-5", "0-6", "0-7", "1-7/2")
LISTS = [("*/7,3", "1"), ("3,*/7", "1"), ("1", "*/7,3"), ("1", "3,*/7"), ("*,5", "1")]


def test_days_are_those_of_debians_cron():
    """All pairs of days of the month and of the week, twelve times each."""
    start = datetime.fromisoformat("2027-12-31")
    differ = {}
    for days, weekdays in [*product(DAYS, WEEKDAYS), *LISTS]:
        expression = Expression.parse(f"0 0 {days} * {weekdays}")
        before, found = start - timedelta(seconds=1), []
        while len(found) < 12:
            found.append(next(expression.times(before)))
            before = found[-1] + timedelta(hours=23)
        count = (found[-1] - start).days + 1
        if found != list(vixie_days(days, weekdays, start, count)):
            differ[days, weekdays] = found
    assert {} == differ


def test_every_name_can_be_read():
    """As the five fields that it stands for."""
    assert NAMES == {name: Expression.parse(name).fields for name in NAMES}


def test_a_rare_date_is_found():
    """29 February, also over a century without it."""
    rare = Expression.parse("0 0 29 2 *")

    after, then = map(datetime.fromisoformat, ["2096-03-01", "2104-02-29"])
    assert then == next(rare.times(after))


@pytest.mark.parametrize(
    "text,follows",
    [
        ("0 * * * *", True),
        ("*/5 */2 * * *", True),
        ("@hourly", True),
        ("*/5 3 * * *", False),
        ("0 0-23 * * *", False),
        ("@daily", False),
    ],
)
def test_it_goes_by_time_if_its_hours_say_all(text, follows):
    """As in Debian's cron: `*` and `*/n`."""
    assert follows is Expression.parse(text).follows_time
