"""
Place: where days are exported to. A format is a place of its own.

The export of a day has two steps. write() makes all of it without changing what readers
see; publish() puts it where they look. A run that ends between any two statements of
these is made up for by the next one, which does both again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol

from django_pgqueue.exceptions import SparkError
from django_pgqueue.runs.exports import Content


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
    """

    content: str
    files: Sequence[dict[str, Any]]
    version: int | None = None


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
        """Replace what readers see of *day* with what was written."""
