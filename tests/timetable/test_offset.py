"""Where in a window a job is due follows from its task and key alone."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta

from django_pgqueue.timetable.offset import offset

DAY = timedelta(days=1)
TASK = "shop.tasks.refresh"


def test_offsets_stay_what_they_are():
    """Tomorrow, elsewhere, and in the next version: these were written down."""
    assert (
        timedelta(seconds=24_062, microseconds=604_425),
        timedelta(seconds=12_462, microseconds=909_946),
        timedelta(seconds=62_324, microseconds=795_692),
    ) == (
        offset(TASK, [7], DAY),
        offset(TASK, ["anna", 7], DAY),
        offset("shop.tasks.bill", [7], DAY),
    )


def test_a_key_is_the_same_wherever_it_comes_from():
    """A file has texts, a table numbers."""
    assert offset(TASK, [7], DAY) == offset(TASK, ["7"], DAY)


def test_offsets_are_spread_evenly():
    """
    Of 100,000 customers over 24 hours, each minute gets its share.

    The sum of squares is that of chance: chi-square of 1,439 degrees of freedom has a
    mean of 1,439 and a deviation of 54.
    """
    minutes = Counter(
        offset(TASK, [customer], DAY) // timedelta(minutes=1)
        for customer in range(1, 100_001)
    )
    expected = 100_000 / 1_440
    square = sum((minutes[n] - expected) ** 2 / expected for n in range(1_440))

    assert 1_439 - 4 * 54 < square < 1_439 + 4 * 54
    assert set(range(1_440)) == set(minutes)


def test_two_tasks_do_not_coincide():
    """A customer's moment for one says nothing of that for another."""
    near = sum(
        abs(offset("a.b", [n], DAY) - offset("a.c", [n], DAY)) < timedelta(minutes=1)
        for n in range(10_000)
    )

    # 1 of 720 by chance: 14.
    assert near < 40


def test_dates_and_truths_are_texts_as_spark_writes_them():
    """So that the plain function can tell when a row is due."""
    assert offset(TASK, ["2026-01-01", "true"], DAY) == offset(
        TASK, [date(2026, 1, 1), True], DAY
    )
