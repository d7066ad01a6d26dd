"""Retention by size: what topics have of each day, and who keeps how much."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from django_pgqueue.log import browse, sizes
from django_pgqueue.log.sizes import first_within
from tests.harness.factories import make_topic
from tests.log.rows import fill_day

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


@pytest.mark.parametrize("pages", [sizes.SAMPLED_PAGES, 20])
def test_what_a_topic_has_is_estimated_from_some_pages(
    cursor, log_days, monkeypatch, pages
):
    """
    Of small messages and of those that are stored apart; near to what files say.

    The rows of the large ones stand in few pages: where those are missed, or count for
    too much, more pages are read.
    """
    monkeypatch.setattr(sizes, "SAMPLED_PAGES", pages)
    log_days(3)
    small, large = make_topic(name="small"), make_topic(name="large")
    fill_day(cursor, small, log_days(3), n=8_000, size=4)
    fill_day(cursor, large, log_days(3), n=400, size=200)
    (day,) = [each for each in browse.days(cursor) if each.day == log_days(3)]
    assert day.pages > 200

    found = sizes.measure(cursor, day)

    share = 0.15 if pages > day.pages else sizes.OFF_SHARE_MAX
    assert pytest.approx(day.bytes, rel=share) == sum(found.values())
    assert {large.pk, small.pk} == set(found)
