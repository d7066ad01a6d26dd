"""Where in a window a job is due follows from its task and key alone."""

from __future__ import annotations

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


def test_dates_and_truths_are_texts_as_spark_writes_them():
    """So that the plain function can tell when a row is due."""
    assert offset(TASK, ["2026-01-01", "true"], DAY) == offset(
        TASK, [date(2026, 1, 1), True], DAY
    )
