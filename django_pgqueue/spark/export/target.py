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
            "The pipeline job export has no path: set PGQUEUE['EXPORT'], or give "
            "-o path=/srv/export."
        )
    if not EXPORT_TARGET.match(path):
        raise SparkOptionError(
            f"The path of the export is {path!r}; it must begin with / or be a URI "
            f"such as s3a://bucket/jobs."
        )
    if len(path) > EXPORT_CHARACTERS_MAX:
        raise SparkOptionError(
            f"The path of the export has {len(path):,} characters; the limit is "
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


def checked_day(name: str, text: str, otherwise: date) -> date:
    """
    Return the day that the option *name* says; *otherwise*, if it says nothing.

    Raises:
        SparkOptionError: It is no day.
    """
    try:
        return date.fromisoformat(text) if text else otherwise
    except ValueError:
        raise SparkOptionError(
            f"The option {name} is {text!r}; it must be a day such as 2026-11-21."
        ) from None
