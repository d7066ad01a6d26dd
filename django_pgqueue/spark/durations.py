"""Durations: "90s", "12h", "7d", as settings and tasks have them too."""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.options.durations import as_timedelta


def duration(name: str, text: str) -> timedelta:
    """
    Return the duration that the option *name* of a pipeline job says.

    Raises:
        SparkOptionError: It says none, or more than ten years.
    """
    try:
        return as_timedelta(text, name=f"The option {name}")
    except ValueError as error:
        raise SparkOptionError(str(error)) from None
