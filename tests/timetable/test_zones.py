"""Zones: places are good names, old names are not."""

from __future__ import annotations

import re

import pytest

from django_pgqueue.exceptions import ScheduleError
from django_pgqueue.timetable.zones import read_zone


def test_places_are_good():
    """And UTC, by any of its names that all systems have."""
    names = ["UTC", "Etc/UTC", "Etc/GMT+5", "Europe/Berlin", "Australia/Lord_Howe"]
    assert names == [read_zone(name).key for name in names]


@pytest.mark.parametrize(
    "name,why",
    [
        ("", "not ''"),
        (None, "not None"),
        ("Europe/Berlinn", "Did you mean 'Europe/Berlin'"),
        ("../etc/passwd", "There is no time zone"),
        ("Europe/\x00", "There is no time zone"),
        ("x" * 10_000, "There is no time zone"),
        ("EST5EDT", "is an old name"),
    ],
)
def test_others_are_refused(name, why):
    """With the nearest name, or what to write."""
    with pytest.raises(ScheduleError, match=re.escape(why)):
        read_zone(name)
