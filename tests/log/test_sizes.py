"""Retention by size: what topics have of each day, and who keeps how much."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from django_pgqueue.log.sizes import first_within

DAY = timedelta(days=1)
MONDAY = date(2026, 1, 5)


@pytest.mark.parametrize(
    "days,bytes_max,kept",
    [
        ([10, 10, 10], None, None),
        ([10, 10, 10], 30, None),
        ([10, 10, 10], 29, 1),
        ([10, 10, 10], 10, 2),
        # A day that is not closed counts, and stays.
        ([10, 10, 50], 20, 2),
        ([], 1, None),
    ],
)
def test_the_newest_days_that_fit_are_kept(days, bytes_max, kept):
    """Whole ones; the last of these days is not closed."""
    of_days = {MONDAY + n * DAY: size for n, size in enumerate(days)}
    closed = list(of_days)[:2]

    first = first_within(of_days, bytes_max, closed)

    assert (None if kept is None else MONDAY + kept * DAY) == first
