"""
Place: where days are exported to. A format is a place of its own.

The export of a day has these steps. write() makes all of it without changing what
readers see; publish() puts it where they look, beside what is there; the manifest says
that it is the day from now on; and only then clean() deletes what it has replaced.

A run may be paused between any two statements, and go on when another one has done the
day. So no file is ever written twice, moved out of its place, or deleted because of its
place: names are a run's own, and what is deleted are names that a manifest of a live
run has given up. Who is no longer live writes no manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol

from django_pgqueue.exceptions import SparkError
from django_pgqueue.pipeline.exports import Content, Files


class DayRefused(SparkError):
    """A day cannot be exported, and nothing of it is published; others may be."""


@dataclass(frozen=True, slots=True)
class Published:
    """
    What readers find of a day.

    Attributes:
        content: A checksum over all columns; "" for a day without rows.
        files: Their paths below the target, with their bytes.
        version: That of a Delta table, which has the day.
        replaced: Paths of other files of the day, which these replace.
    """

    content: str
    files: Sequence[dict[str, Any]]
    version: int | None = None
    replaced: Sequence[str] = ()


class Place(Protocol):
    """What the pipeline job asks of a format."""

    def clear(self) -> None:
        """Remove what runs have left that did not come to their end."""

    def leave(self) -> None:
        """Remove what this run has not published."""

    def has(self, day: date) -> bool:
        """Whether readers find something of *day*."""

    def write(self, day: date, frame: Any, expected: Content, size: int) -> None:
        """
        Write *frame*, the rows of *day*, and compare it with *expected*.

        Args:
            day: Which.
            frame: All columns of its rows, without secrets.
            expected: What PostgreSQL has of it.
            size: The bytes that it has there.

        Raises:
            DayRefused: They differ.
        """

    def publish(self, day: date) -> Published:
        """Put what was written of *day* where readers look."""

    def take_back(self, day: date, listed: Sequence[str]) -> None:
        """Delete what publish() has put there, but for what the manifest has listed."""

    def clean(self, day: date, paths: Sequence[str]) -> None:
        """Delete *paths*, which a manifest has replaced; the day is complete then."""

    def remove(self, paths: Sequence[str]) -> None:
        """Delete *paths*, which no manifest lists."""

    def strays(self, day: date) -> list[str]:
        """Return the files in the place of *day*, of which some may not be listed."""

    def look(self, day: date, files: Files, rows: int) -> Files | None:
        """
        Return the files that hold *day* now; None: it is not all there.

        Args:
            day: Which.
            files: Those that its manifest lists.
            rows: How many it has, by the manifest.
        """
