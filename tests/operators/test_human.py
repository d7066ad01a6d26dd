"""Times and counts as people read them, everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from django_pgqueue.operators.human import age, count, distance, duration, in_utc

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_a_duration_has_two_units_and_is_never_rounded_up():
    """Three figures under a minute; nothing is told that has not passed yet."""
    assert {
        None: "",
        -5: "0 s",
        0.00042: "0.42 ms",
        0.9999: "999 ms",
        1: "1 s",
        3.257: "3.25 s",
        59.999_999: "59.9 s",
        60: "1 min",
        119.9: "1 min 59 s",
        3_659: "1 h",
        9_000: "2 h 30 min",
        86_400 + 3_599: "1 d",
        172_799: "1 d 23 h",
        8.64e9: "100,000 d",
    } == {
        seconds: duration(seconds)
        for seconds in (
            *(None, -5, 0.00042, 0.9999, 1, 3.257, 59.999_999, 60, 119.9),
            *(3_659, 9_000, 86_400 + 3_599, 172_799, 8.64e9),
        )
    }
    assert ["", "0 s", "1 min 30 s"] == [age(each) for each in (None, -0.5, 90.9)]


def test_a_distance_says_which_way():
    """From the clock into the future, or into the past."""
    assert ["now", "1 s ago", "in 5 s", "1 min 30 s ago", "in 2 d 3 h"] == [
        distance(NOON + timedelta(seconds=seconds), NOON)
        for seconds in (0.9, -1, 5.9, -90, 183_600)
    ]
    assert "" == distance(None, NOON)


def test_a_moment_without_a_zone_is_the_projects(settings):
    """Django's own times have none where USE_TZ is off."""
    settings.TIME_ZONE = "Europe/Berlin"

    assert NOON == in_utc(datetime(2026, 11, 22, 13))  # noqa: DTZ001
    assert NOON == in_utc(NOON.astimezone(timezone(timedelta(hours=5))))


def test_a_count_says_where_it_stopped():
    """A sign behind it, and no other number."""
    assert ("1,000", "10,000+") == (count(1_000), count(10_000, is_more=True))
