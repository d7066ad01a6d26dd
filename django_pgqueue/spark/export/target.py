"""Target: how the place is written that days are exported to."""

from __future__ import annotations

from datetime import date

from django_pgqueue.bounds import (
    EXPORT_CHARACTERS_MAX,
    EXPORT_FORMATS,
    EXPORT_TARGET,
)
from django_pgqueue.exceptions import SparkOptionError


def checked_target(path: str) -> str:
    """
    Return *path* as manifests have it: without slashes at its end.

    Raises:
        SparkOptionError: There is none, it is not from the root, or it is too long.
    """
    if not path:
        raise SparkOptionError(
            "The run has no path: set PGQUEUE['EXPORT'], or give -o path=/srv/export."
        )
    if not EXPORT_TARGET.match(path):
        raise SparkOptionError(
            f"The path is {path!r}; it must begin with / or be a URI such as "
            f"s3a://bucket/jobs."
        )
    if len(path) > EXPORT_CHARACTERS_MAX:
        raise SparkOptionError(
            f"The path has {len(path):,} characters; the limit is "
            f"{EXPORT_CHARACTERS_MAX:,}."
        )
    return path.rstrip("/")


def checked_format(form: str) -> str:
    """
    Return *form*.

    Raises:
        SparkOptionError: There is no such format.
    """
    if form not in EXPORT_FORMATS:
        raise SparkOptionError(
            f"The option format is {form!r}; it must be {' or '.join(EXPORT_FORMATS)}."
        )
    return form


def checked_days(since: str, until: str) -> tuple[date, date]:
    """
    Return the first and the last day that the options say; "": there is no such end.

    Raises:
        SparkOptionError: One is no day, or the last is before the first.
    """
    first, last = _day("since", since, date.min), _day("until", until, date.max)
    if last < first:
        raise SparkOptionError(
            f"The option until is {until!r}, before since, which is {since!r}: no day "
            f"is meant."
        )
    return first, last


def _day(name: str, text: str, otherwise: date) -> date:
    try:
        return date.fromisoformat(text) if text else otherwise
    except ValueError:
        raise SparkOptionError(
            f"The option {name} is {text!r}; it must be a day such as 2026-11-21."
        ) from None
