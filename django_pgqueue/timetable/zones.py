"""Zones: which names of time zones are good."""

from __future__ import annotations

import re
import zoneinfo
from functools import cache
from importlib import resources
from pathlib import Path
from zoneinfo import ZoneInfo

from django_pgqueue.exceptions import ScheduleError, did_you_mean

# In every tz database, and in no list of places.
ALWAYS = re.compile(r"UTC|Etc/(UTC|GMT|GMT[+-]\d{1,2})")

PLACES = "zone.tab"


def read_zone(name: str) -> ZoneInfo:
    """
    Return the time zone *name*: UTC, or a place such as Europe/Berlin.

    Names that the tz database keeps for old times' sake only, such as EST5EDT or
    US/Pacific, are refused: what they mean has changed, and some systems lack them.

    Raises:
        ScheduleError: There is no such zone, or its name is an old one.
    """
    zone = find_zone(name)
    known = _places()
    if known and name not in known and not ALWAYS.fullmatch(name):
        raise ScheduleError(
            f"The time zone {name!r} is an old name: write a place, such as "
            f"'Europe/Berlin', or 'UTC'."
        )
    return zone


def find_zone(name: str) -> ZoneInfo:
    """
    Return the time zone *name* of a schedule that there is, also by an old name.

    The tz database renames places now and then, and keeps the old name: a schedule that
    has it goes on.

    Raises:
        ScheduleError: There is no such zone.
    """
    if not isinstance(name, str) or not name:
        raise ScheduleError(
            f"A time zone is a name like 'Europe/Berlin', not {name!r}."
        )
    try:
        return ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError(
            f"There is no time zone {name!r} here."
            f"{did_you_mean(name, sorted(_places()))} "
            f"Where the system has no tz database, install the package tzdata."
        ) from None


def zone_names() -> list[str]:
    """Return the names that a schedule may have, in order: UTC and all places."""
    return sorted({"UTC", *_places()})


@cache
def _places() -> frozenset[str]:
    """Return the names of all places, or nothing if the system has no list."""
    texts = [Path(folder) / PLACES for folder in zoneinfo.TZPATH]
    lines: list[str] = []
    for path in texts:
        if path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines()
            break
    else:
        try:
            listed = resources.files("tzdata.zoneinfo") / PLACES
            lines = listed.read_text(encoding="utf-8").splitlines()
        except (ModuleNotFoundError, FileNotFoundError):
            pass
    return frozenset(
        line.split("\t")[2] for line in lines if line and not line.startswith("#")
    )
