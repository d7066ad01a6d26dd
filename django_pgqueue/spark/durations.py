"""Durations: "90s", "12h", "7d", as settings and tasks have them too."""

from __future__ import annotations

import re
from datetime import timedelta

from django_pgqueue.exceptions import SparkOptionError

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

DAYS_MAX = 36_500


def duration(name: str, text: str) -> timedelta:
    """
    Return the duration that the option *name* of a pipeline job says.

    Raises:
        SparkOptionError: It says none, or more than a hundred years.
    """
    found = re.fullmatch(r"(\d{1,9})([smhd])", text.strip())
    if found is not None:
        said = timedelta(**{UNITS[found[2]]: int(found[1])})
        if said <= timedelta(days=DAYS_MAX):
            return said
    raise SparkOptionError(
        f"The option {name} is {text!r}: write a duration such as '90s', '12h' or "
        f"'7d', up to {DAYS_MAX:,} days."
    )
