"""
Option table: what an option of format("pgqueue") is, and how a table of them is read.

READS in spark/options.py and WRITES in spark/write/options.py are such tables. Their
names, words and limits stand in the pages of the reference as well, and a test holds
one to the other.

Options are text, and stand in plans and in Spark's UI. So there is none for a DSN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_pgqueue.bounds import TIME_MAX, TIME_MIN
from django_pgqueue.exceptions import SparkOptionError, did_you_mean, raised_as
from django_pgqueue.options.durations import as_timedelta
from django_pgqueue.spark.dsn import DEFAULT_VARIABLE, DsnSource
from django_pgqueue.timetable.offset import KEY_VALUES_MAX

# What people try, from other sources. The value is never repeated.
CONNECTIONS = frozenset(
    {"dsn", "url", "uri", "user", "password", "host", "dbname", "database", "dburl"}
)

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Option:
    """
    An option, as a row of a table.

    Attributes:
        name: As .option(…) has it.
        field: What holds its value.
        read: Makes it of the option's name and text; SparkOptionError: it cannot be.
        of: What alone has it, in words of the table; "": all that the table is for.
    """

    name: str
    field: str
    read: Callable[[str, str], Any]
    of: str = ""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within limits."""

    low: int
    high: int

    def __call__(self, name: str, text: str) -> int:
        """Return it."""
        try:
            value = int(text)
        except ValueError:
            value = self.low - 1
        if not self.low <= value <= self.high:
            raise SparkOptionError(
                f"The option {name} is {text[:40]!r}; it must be a whole number from "
                f"{self.low} to {self.high:,}."
            )
        return value


@dataclass(frozen=True, slots=True)
class Word:
    """One of some words."""

    words: tuple[str, ...]

    def __call__(self, name: str, text: str) -> str:
        """Return it."""
        if text not in self.words:
            raise SparkOptionError(
                f"The option {name} is {text[:40]!r}."
                f"{did_you_mean(text, list(self.words))} It must be one of "
                f"{', '.join(self.words)}."
            )
        return text


def as_given(name: str, text: str) -> str:
    """Take any text."""
    return text


def moment(name: str, text: str) -> datetime:
    """Take a time with its offset."""
    try:
        found = datetime.fromisoformat(text)
        is_good = found.tzinfo is not None and TIME_MIN <= found <= TIME_MAX
    except (ValueError, OverflowError):
        is_good = False
    if not is_good:
        raise SparkOptionError(
            f"The option {name} is {text[:40]!r}; it must be a time of the years 1900 "
            f"to 9000 with its offset, such as 2026-03-01T09:00:00+00:00."
        )
    return found


def duration(name: str, text: str) -> timedelta:
    """Take a duration such as "90s", "12h" or "7d", of up to ten years."""
    with raised_as(SparkOptionError):
        return as_timedelta(text, name=f"The option {name}")


def variable(name: str, text: str) -> str:
    """Take the name of an environment variable."""
    if not VARIABLE.fullmatch(text):
        # Whoever has put the DSN itself here is not shown it in the logs as well.
        raise SparkOptionError(
            f"The option {name} must be the name of an environment variable, such as "
            f"{DEFAULT_VARIABLE}; a DSN itself belongs into that variable."
        )
    return text


def key_columns(option: str, text: str) -> tuple[str, ...]:
    """
    Return the columns that an option names, with commas between.

    Raises:
        SparkOptionError: None, one twice, or more than KEY_VALUES_MAX.
    """
    names = tuple(name.strip() for name in text.split(","))
    if "" in names or len(set(names)) < len(names) or len(names) > KEY_VALUES_MAX:
        raise SparkOptionError(
            f"The option {option} is {text[:80]!r}; it must name 1 to {KEY_VALUES_MAX} "
            f"columns, each once, with commas between."
        )
    return names


# Of each table.
WHERE = (
    Option("dsnEnv", "variable", variable),
    Option("dsnFile", "file", as_given),
)


def read(table: tuple[Option, ...], options: Mapping[str, str]) -> dict[str, Any]:
    """
    Return the values of the options that are given, by their fields.

    Args:
        table: With the rows of WHERE, which become the field dsn.
        options: What .option(…) was given; their names are of any case.

    Raises:
        SparkOptionError: An unknown option, or a value that cannot be; with the
            nearest known one.
    """
    known = {option.name.casefold(): option for option in table}
    given = {str(name).casefold(): text for name, text in options.items()}
    for name in given:
        _check_name(name, table)
    if "dsnenv" in given and "dsnfile" in given:
        raise SparkOptionError("Give one of the options dsnEnv and dsnFile, not both.")
    found = {
        known[name].field: known[name].read(known[name].name, text)
        for name, text in given.items()
    }
    found["dsn"] = DsnSource(
        found.pop("variable", DEFAULT_VARIABLE), found.pop("file", None)
    )
    return found


def _check_name(name: str, table: tuple[Option, ...]) -> None:
    names = [option.name for option in table]
    if name in CONNECTIONS:
        raise SparkOptionError(
            f"There is no option {name!r}: options stand in plans and in Spark's "
            f"UI, passwords too. Put the DSN into the environment variable "
            f"{DEFAULT_VARIABLE}, or name another variable by the option dsnEnv, "
            f"or a file by dsnFile."
        )
    if name not in map(str.casefold, names):
        raise SparkOptionError(
            f"Unknown option {name!r}.{did_you_mean(name, names)} "
            f"The options are {', '.join(names)}."
        )
