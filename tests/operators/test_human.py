"""Times and counts as people read them, everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from django_pgqueue.operators.human import age, count, distance, duration, in_utc

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "seconds, text",
    [
        (None, ""),
        (-5, "0 s"),
        (0, "0 s"),
        (0.00042, "0.42 ms"),
        (0.0123, "12.3 ms"),
        (0.9999, "999 ms"),
        (1, "1 s"),
        (2.3, "2.3 s"),
        (3.257, "3.25 s"),
        (59.999_999, "59.9 s"),
        (60, "1 min"),
        (90, "1 min 30 s"),
        (119.9, "1 min 59 s"),
        (3_599.9, "59 min 59 s"),
        (3_600, "1 h"),
        (3_659, "1 h"),
        (9_000, "2 h 30 min"),
        (86_399, "23 h 59 min"),
        (86_400 + 3_599, "1 d"),
        (172_799, "1 d 23 h"),
        (60 * 86_400, "60 d"),
        (8.64e9, "100,000 d"),
    ],
)
def test_a_duration_has_two_units_and_is_never_rounded_up(seconds, text):
    """Three figures under a minute; nothing is told that has not passed yet."""
    assert text == duration(seconds)


@pytest.mark.parametrize(
    "seconds, text",
    [(None, ""), (-0.5, "0 s"), (0.9, "0 s"), (5.9, "5 s"), (90.9, "1 min 30 s")],
)
def test_ages_are_whole_seconds(seconds, text):
    """A page is older than the parts of a second would be."""
    assert text == age(seconds)


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.9, "now"),
        (-0.9, "now"),
        (-1, "1 s ago"),
        (5.9, "in 5 s"),
        (-90, "1 min 30 s ago"),
        (183_600, "in 2 d 3 h"),
    ],
)
def test_a_distance_says_which_way(seconds, text):
    """From the clock into the future, or into the past."""
    assert text == distance(NOON + timedelta(seconds=seconds), NOON)


def test_no_moment_has_no_distance():
    """A cell of a table stays empty."""
    assert "" == distance(None, NOON)


def test_a_moment_without_a_zone_is_the_projects(settings):
    """Django's own times have none where USE_TZ is off."""
    settings.TIME_ZONE = "Europe/Berlin"

    assert NOON == in_utc(datetime(2026, 11, 22, 13))  # noqa: DTZ001
    assert NOON == in_utc(NOON.astimezone(timezone(timedelta(hours=5))))


def test_a_count_says_where_it_stopped():
    """A sign behind it, and no other number."""
    assert ("1,000", "10,000+") == (count(1_000), count(10_000, is_more=True))
