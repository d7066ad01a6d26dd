"""
Starting: where a read of the log begins, and where it ends.

    earliest | latest | 2026-11-22T09:00:00+00:00 | {"orders": 1200}
    {"orders": {"0": 1200, "1": 1180}}

A position is an id: a read begins after it, and ends with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django_pgqueue.exceptions import MessagesLost, SparkOptionError
from django_pgqueue.log import seek
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.spark.log.offsets import Topic
from django_pgqueue.spark.option_table import moment

EARLIEST, LATEST = "earliest", "latest"

POSITION_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """One end of a read: EARLIEST, LATEST, a time, or positions."""

    word: str | None = None
    time: datetime | None = None
    # By topic: of all its partitions, or by partition.
    positions: Mapping[str, int | Mapping[int, int]] | None = None

    def position(self, topic: str, partition: int, otherwise: int) -> int:
        """Return the position that was named, or *otherwise* where none was."""
        named = (self.positions or {}).get(topic, otherwise)
        return named if isinstance(named, int) else named.get(partition, otherwise)


def parse(option: str, text: str) -> Place:
    """
    Read the option *option*.

    Raises:
        SparkOptionError: It says no place.
    """
    if text in (EARLIEST, LATEST):
        return Place(word=text)
    if text.lstrip().startswith("{"):
        return Place(positions=_positions(option, text))
    try:
        return Place(time=moment(option, text))
    except SparkOptionError:
        raise SparkOptionError(
            f"The option {option} is {text[:80]!r}; it must be {EARLIEST}, {LATEST}, a "
            f"time with its offset such as 2026-11-22T09:00:00+00:00, or positions "
            f'such as {{"orders": 1200}} or {{"orders": {{"0": 1200, "1": 1180}}}}.'
        ) from None


def check_topics(option: str, place: Place, names: Sequence[str] | None) -> None:
    """Raise SparkOptionError for positions of topics that are not read."""
    for name in place.positions or {}:
        if names is not None and name not in names:
            raise SparkOptionError(
                f"The option {option} has a position of {name!r}, which the option "
                f"topic does not name; it names {', '.join(names)}."
            )


def begin(
    cursor: Cursor,
    place: Place,
    topic: Topic,
    partitions: Sequence[int],
    horizon: int,
) -> dict[int, int]:
    """
    Return after which id a read of each of some partitions begins.

    The topic's *horizon* was fetched before this is called.
    """
    if place.word == LATEST:
        return dict.fromkeys(partitions, horizon)
    if place.time is not None:
        try:
            low = seek.before(cursor, place.time, topic.removed_to, horizon)
        except MessagesLost:
            low = topic.removed_to
        return seek.firsts(
            cursor, topic.id, partitions, place.time, low=low, bound=horizon
        )
    # What is not named begins at the earliest.
    return {
        number: place.position(topic.name, number, topic.removed_to)
        for number in partitions
    }


def end(place: Place, topic: Topic, partition: int, horizon: int) -> int:
    """Return the last id that a read of *partition* may have."""
    if place.word == EARLIEST:
        return topic.removed_to
    return min(place.position(topic.name, partition, horizon), horizon)


def _positions(option: str, text: str) -> dict[str, int | Mapping[int, int]]:
    wrong = SparkOptionError(
        f"The option {option} is {text[:80]!r}; positions are whole numbers from 0 by "
        f'topic, or by topic and partition: {{"orders": 1200}}, '
        f'{{"orders": {{"0": 1200, "1": 1180}}}}.'
    )
    try:
        given = json.loads(text)
    except ValueError:
        raise wrong from None
    positions: dict[str, int | Mapping[int, int]] = {}
    for topic, said in given.items():
        if isinstance(said, dict):
            if not all(key.isdecimal() and _is_position(said[key]) for key in said):
                raise wrong
            positions[topic] = {int(key): value for key, value in said.items()}
        elif _is_position(said):
            positions[topic] = said
        else:
            raise wrong
    return positions


def _is_position(value: object) -> bool:
    return type(value) is int and 0 <= value <= POSITION_MAX
