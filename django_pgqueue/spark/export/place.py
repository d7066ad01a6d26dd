"""
Place: where days are exported to. A format is a place of its own.

A day is written in these steps. write() makes all of it without changing what readers
see; publish() puts it where they look, beside what is there; the manifest says that it
is the day from now on; and only then clean() deletes what it has replaced.

A run may be paused between any two statements, and go on when another one has done the
day. So no file is ever written twice, moved out of its place, or deleted because of its
place: names are a run's own, and what is deleted are names that a manifest of a live
run has given up. Who is no longer live writes no manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol

from django_pgqueue.bounds import (
    EXPORT_CHARACTERS_MAX,
    EXPORT_FORMATS,
    EXPORT_TARGET,
)
from django_pgqueue.exceptions import SparkError, SparkOptionError
from django_pgqueue.pipeline.exports import Files
from django_pgqueue.spark.export.sums import Sums
from django_pgqueue.spark.run import Run

# Megabytes (2**20 bytes) of a file; one that has grown so large is followed by another.
FILE_MB = 256


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


class DayRefused(SparkError):
    """A day cannot be written, and nothing of it is published; others may be."""


class Written(Protocol):
    """What is written: batches, and what they were once they are taken."""

    sums: Sums

    @property
    def schema(self) -> Any:
        """The columns of its batches."""

    def batches(self) -> Iterator[Any]:
        """Yield them as pyarrow.RecordBatch of `schema`, once."""


@dataclass(frozen=True, slots=True)
class Published:
    """
    What readers find of a day.

    Attributes:
        files: Their paths below the target, with their bytes and rows.
        version: That of a Delta table, which has the day.
        replaced: Paths of other files of the day, which these replace.
    """

    files: Files
    version: int | None = None
    replaced: Sequence[str] = ()


class Place(Protocol):
    """What the pipeline jobs ask of a format."""

    # Whether some files of a day may be replaced, and others stay. Where not, there is
    # nothing to remove either: a table has a log of its own.
    replaces_files: bool = False
    # A file that has grown so large is followed by another.
    file_bytes: int = FILE_MB * 2**20
    # What a commit that replaces a day says besides, where there are commits.
    says: Mapping[str, str]
    _run: Run

    def __init__(self, run: Run) -> None:
        self._run, self.says = run, {}

    def clear(self, live: Sequence[int]) -> None:
        """Remove what runs have left that are not among the *live* ones."""

    def leave(self) -> None:
        """Remove what this run has not published."""

    def has(self, day: date) -> bool:
        """Whether readers find something of *day*."""

    def write(self, day: date, rows: Written) -> None:
        """
        Write *rows*, those of *day*, and compare them with what is in the files.

        Raises:
            DayRefused: They differ.
        """

    def publish(self, day: date, kept: Sequence[str] = ()) -> Published:
        """
        Put what was written of *day* where readers look.

        Files of the day stay whose paths are *kept*.
        """

    def take_back(self, day: date, listed: Sequence[str]) -> None:
        """Delete what publish() has put there, but for what the manifest has listed."""

    def clean(self, day: date, paths: Sequence[str]) -> None:
        """Delete *paths*, which a manifest has replaced; the day is complete then."""

    def remove(self, paths: Sequence[str]) -> None:
        """Delete *paths*, which no manifest lists."""

    def forget(self) -> None:
        """Delete for good what was replaced, and can be read as it was before."""

    def said(self, name: str) -> list[Mapping[str, Any]]:
        """Return what commits say that say *name*, with their `version`."""
        return []

    def strays(self, day: date) -> list[str]:
        """Return the files in the place of *day*, of which some may not be listed."""
        return []

    def look(self, day: date, files: Files, rows: int) -> Files | None:
        """
        Return the files that hold *day* now; None: it is not all there.

        Its manifest lists *files*, and says that it has so many *rows*.
        """

    def schema(self, files: Files) -> Any:
        """Return the columns of the contract, and then those that *files* have too."""

    def rows(
        self, day: date, files: Files, columns: Sequence[str] | None = None
    ) -> Iterator[Any]:
        """Yield the rows of *files*, of *day*, or some columns, and their queue."""


def compare(run: Run, given: Sums, batches: Iterator[Any], of: str = "") -> None:
    """Raise DayRefused unless *batches*, read again, are what was written."""
    there = Sums()
    for batch in batches:
        run.check()
        there.add(batch)
    if (given.rows, given.content) != (there.rows, there.content):
        raise DayRefused(
            f"Rows and checksum{of} differ: {given.rows:,} rows were written with the "
            f"checksum {given.content}, and {there.rows:,} are there with "
            f"{there.content}."
        )
