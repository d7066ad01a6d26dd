"""
Offsets: how far a stream is, as its checkpoint keeps it.

They have what a checkpoint must be held against: the installation, which a dump of the
database carries along, the topics' ids, and for each topic a message that the log had
at that moment. Equal states are equal texts: Spark compares them as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django_pgqueue.exceptions import SparkError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """A message that the log had, by its id and its time."""

    id: int
    # In UTC, to the microsecond.
    at: str


@dataclass(frozen=True, slots=True)
class TopicOffset:
    """How far one topic is read."""

    id: int
    # Up to which id a partition is read that has no position: no message of it was
    # seen yet.
    read_to: int
    positions: Mapping[int, int] = field(default_factory=dict)
    # None: none was seen yet.
    mark: Mark | None = None

    def position(self, partition: int) -> int:
        """Return up to which id *partition* is read."""
        return self.positions.get(partition, self.read_to)

    def raised(self, position: int) -> TopicOffset:
        """Return it with no position below *position*."""
        if self.lowest >= position:
            return self
        return replace(
            self,
            read_to=max(self.read_to, position),
            positions={
                number: max(at, position) for number, at in self.positions.items()
            },
        )

    @property
    def lowest(self) -> int:
        """The lowest position of all."""
        return min([self.read_to, *self.positions.values()])

    @property
    def highest(self) -> int:
        """The highest position of all."""
        return max([self.read_to, *self.positions.values()])


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a stream is."""

    installation: str
    topics: Mapping[str, TopicOffset]

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Offset:
        """
        Read what dump() has made.

        Raises:
            SparkError: Another version of this package has made it.
        """
        if given.get("version") != VERSION:
            raise SparkError(
                f"The checkpoint has offsets of version {given.get('version')!r}, and "
                f"this django_pgqueue reads version {VERSION}: go on with the one that "
                f"has made it, or begin a new checkpoint."
            )
        return cls(
            given["installation"],
            {
                name: TopicOffset(
                    said["id"],
                    said["read_to"],
                    {int(number): at for number, at in said["partitions"].items()},
                    Mark(**said["mark"]) if said.get("mark") else None,
                )
                for name, said in given["topics"].items()
            },
        )

    def dump(self) -> dict[str, Any]:
        """Return it as a dict for JSON, always in the same order."""
        return {
            "version": VERSION,
            "installation": self.installation,
            "topics": {
                name: {
                    "id": topic.id,
                    "read_to": topic.read_to,
                    "partitions": {
                        str(number): topic.positions[number]
                        for number in sorted(topic.positions)
                    },
                    **({"mark": asdict(topic.mark)} if topic.mark else {}),
                }
                for name, topic in sorted(self.topics.items())
            },
        }
