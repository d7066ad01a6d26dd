"""
Group: a consumer group, to be asked and moved.

    stats = topic("clicks").group("stats")
    stats.lag()
    stats.seek("2026-01-01T00:00+00:00")
"""

from __future__ import annotations

from datetime import datetime

from asgiref.sync import sync_to_async

from django_pgqueue.exceptions import TopicError
from django_pgqueue.log import groups
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.lag import COUNTED_MESSAGES_MAX, PartitionLag, lag
from django_pgqueue.log.names import check_topic
from django_pgqueue.log.seek import Sought
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.tasks import database
from django_pgqueue.topics import operate_groups


class Group:
    """A consumer group of a topic, by their names."""

    __slots__ = ("name", "topic")

    def __init__(self, topic: str, name: str) -> None:
        self.topic = check_topic(topic)
        self.name = check_topic(name)

    def lag(self, *, limit: int = COUNTED_MESSAGES_MAX) -> list[PartitionLag]:
        """
        Return how far behind the group is, by partition.

        Args:
            limit: Count no more messages than that in each partition.

        Raises:
            TopicError: There is no such group.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise TopicError(f"lag(limit={limit!r}): it must be a whole number from 1.")
        with database.cursor() as cursor:
            row = self._row(cursor)
            return lag(cursor, row.id, limit=limit)

    async def alag(self, *, limit: int = COUNTED_MESSAGES_MAX) -> list[PartitionLag]:
        """As lag(), from async code."""
        return await sync_to_async(self.lag)(limit=limit)

    def seek(
        self, to: int | str | datetime, *, partition: int | None = None
    ) -> list[Sought]:
        """
        Let the group read on from another place, while it is read.

        What is being read is refused when it is done. Ends what is halted, and what
        waits for another attempt.

        Args:
            to: "earliest": what retention has left; "latest": what is published from
                now on; an id: what comes after it; a moment with its zone, also as
                ISO 8601: what was published from then on.
            partition: That one alone; None: all.

        Returns:
            Where each position was, and is.

        Raises:
            MessagesLost: Retention has removed messages after that place.
            TopicError: There is no such place, partition or group.
        """
        return operate_groups.seek(self.row(), to, partition=partition)

    async def aseek(
        self, to: int | str | datetime, *, partition: int | None = None
    ) -> list[Sought]:
        """As seek(), from async code."""
        return await sync_to_async(self.seek)(to, partition=partition)

    def pause(self, *, by: str = "", reason: str = "") -> bool:
        """
        Let nobody read for the group; what is being read is finished.

        Args:
            by: Who; at most 150 characters.
            reason: Why; at most 2,000 characters.

        Returns:
            False: it was paused already.

        Raises:
            InvalidOption: A text is too long.
            TopicError: There is no such group.
        """
        return operate_groups.pause(self.row(), by=by, reason=reason)

    def resume(self) -> bool:
        """End the pause; False: it was not paused. Raises as lag()."""
        return operate_groups.resume(self.row())

    def read_on(self, partition: int | None = None) -> list[int]:
        """
        Let halted partitions be read again, with all attempts; return which.

        Args:
            partition: That one alone; None: all that are halted.

        Raises:
            MessagesLost: Retention has removed what one had not read: seek instead.
            TopicError: There is no such group.
        """
        return operate_groups.read_on(self.row(), partition)

    def row(self) -> GroupRow:
        """Return what its row says; raises as lag()."""
        with database.cursor() as cursor:
            return self._row(cursor)

    def _row(self, cursor: Cursor) -> GroupRow:
        return groups.find(cursor, self.topic, self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash((Group, str(self)))

    def __str__(self) -> str:
        return f"{self.topic}/{self.name}"

    def __repr__(self) -> str:
        return f"topic({self.topic!r}).group({self.name!r})"
