"""How fast pages are read."""

from __future__ import annotations

from django_pgqueue.spark.reader import PAGE_ROWS_MAX, Pace


class Clock:
    """A clock that stands until it is told to go on."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def test_a_page_has_no_more_than_a_second_may_have():
    """And never less than a row."""
    assert Pace(100).page_rows == 100
    assert Pace(0.25).page_rows == 1
    assert PAGE_ROWS_MAX == Pace(10**9).page_rows


def test_rows_are_waited_for_at_the_rate():
    """A quarter of a row a second is a row in four."""
    clock = Clock()

    assert Pace(100, clock).took(50) == 0.5
    assert Pace(0.25, clock).took(1) == 4


def test_time_that_spark_took_is_no_credit():
    """After a minute of nothing, the next page is paced like the first."""
    clock = Clock()
    pace = Pace(100, clock)
    pace.took(100)
    clock.seconds = 60

    assert pace.took(100) == 1


def test_a_page_that_was_too_large_makes_the_next_ones_smaller():
    """They never grow again."""
    pace = Pace(None)
    pace.was_too_large(10)
    pace.was_too_large(20)

    assert pace.page_rows == 10
