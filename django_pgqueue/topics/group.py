"""
Group: a consumer group, to be asked and moved.

    stats = topic("clicks").group("stats")
    stats.lag()
    stats.seek("2026-01-01T00:00+00:00")

Or read, where no task is to: create() makes such a group, and receive() reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import TopicError
from django_pgqueue.log import groups
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.lag import COUNTED_MESSAGES_MAX, PartitionLag, lag
from django_pgqueue.log.names import check_topic
from django_pgqueue.log.pull import MESSAGES_DEFAULT
from django_pgqueue.log.seek import Sought
from django_pgqueue.log.start import LATEST
from django_pgqueue.options.durations import Duration
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limited import limited
from django_pgqueue.postgres.limits import Plans
from django_pgqueue.tasks import database
from django_pgqueue.tasks.database import twin
from django_pgqueue.topics import operate_groups

if TYPE_CHECKING:
    from django_pgqueue.topics.receive import Received
    from django_pgqueue.topics.replay import Replay

# How long lag() may look.
LAG_SECONDS_MAX = 60


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
            OperationalError: Django's; it takes longer than LAG_SECONDS_MAX.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise TopicError(f"lag(limit={limit!r}): it must be a whole number from 1.")
        with (
            limited(
                get_settings().database, seconds=LAG_SECONDS_MAX, plans=Plans.IN_ORDER
            ),
            database.cursor() as cursor,
        ):
            row = self._row(cursor)
            return lag(cursor, row.id, limit=limit)

    alag = twin(lag)

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

    aseek = twin(seek)

    def replay(
        self,
        *,
        since: int | str | datetime | timedelta,
        until: int | str | datetime | timedelta | None = None,
        where: Mapping[str, Any] | None = None,
        rate: int | None = None,
        by: str = "",
        reason: str = "",
    ) -> Replay:
        """
        Have messages once more, as jobs of the group's task, beside what it reads.

        In no order, and its position stays; where order matters, seek(). Arguments and
        errors are those of Topic.replay().
        """
        from django_pgqueue.topics import replay

        replay.check_rate(rate)
        to = f"group:{self.name}"
        meant = replay.plan(self.topic, to, since=since, until=until, where=where)
        return replay.begin(meant, by=by, reason=reason, per_second=rate)

    areplay = twin(replay)

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

    def create(
        self,
        *,
        start: str | datetime | timedelta = LATEST,
        lease: Duration = "60s",
        on_error: str = "retry",
        max_attempts: int = 5,
    ) -> bool:
        """
        Make a group that receive() reads, and no worker; one that exists is changed.

        Where one that exists has read to does not change, whatever *start* says.

        Args:
            start: With which message it begins: "latest", "earliest", a datetime, or
                "60 days ago", as in @consume.
            lease: For how long receive() leases a partition, 1 s to 1 day.
            on_error: What follows a message that has failed each attempt: "retry": it
                is tried for ever; "halt": its partition waits for read_on() or a seek.
            max_attempts: 1 to 32,767, before "halt".

        Returns:
            Whether it is new.

        Raises:
            MessagesLost: It starts at a time of which retention has removed messages.
            TopicError: A value is out of its range, or workers read for this group.
        """
        from django_pgqueue.topics.receive import create

        return create(
            self.topic,
            self.name,
            start=start,
            lease=lease,
            on_error=on_error,
            max_attempts=max_attempts,
        )

    acreate = twin(create)

    def receive(
        self, n: int = MESSAGES_DEFAULT, *, wait: Duration | None = None
    ) -> Received:
        """
        Lease a partition that has something to read, and return its next messages.

            with transaction.atomic():
                for message in batch:
                    ...
                batch.commit()

        Partitions have their turn, and each is one caller's at a time. In no
        transaction, since the lease has to be committed.

        Args:
            n: The most messages, 1 to 10,000; fewer where they have more than 16 MiB
                of text together.
            wait: How long to wait for the first, up to an hour; None: not at all.

        Returns:
            Messages to commit; none, if nothing came.

        Raises:
            TopicError: A value is out of its range, there is no such group, workers
                read for it, or a transaction is open.
        """
        from django_pgqueue.topics import receive

        seconds = receive.check(n, wait)
        return receive.receive(self._pulled_row, n, seconds)

    async def areceive(
        self, n: int = MESSAGES_DEFAULT, *, wait: Duration | None = None
    ) -> Received:
        """As receive(), from async code."""
        from django_pgqueue.topics import receive

        seconds = receive.check(n, wait)
        return await receive.areceive(self._pulled_row, n, seconds)

    def row(self) -> GroupRow:
        """Return what its row says; raises as lag()."""
        with database.cursor() as cursor:
            return self._row(cursor)

    def _pulled_row(self) -> GroupRow:
        row = self.row()
        if not row.is_pulled:
            raise TopicError(
                f"Workers read for the group {self}: its task {row.task} would not get "
                f"what is received here. Make a group of your own: "
                f"{Group(self.topic, 'other')!r}.create()"
            )
        return row

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
