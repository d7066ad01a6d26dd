"""States: in one word what a group, a partition of it or a subscription does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django_pgqueue.log.lag import COUNTED_MESSAGES_MAX, PartitionLag
from django_pgqueue.log.seek import SeekPreview
from django_pgqueue.operators import human
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.serving import is_served

# Of the states of its partitions, a group has the first of these. The words are those
# of log/lag.py, and "unserved": what waits has no living worker.
URGENCY = (
    *("paused", "beyond", "halted", "unserved", "retrying", "held back", "waiting"),
    *("reading", "idle"),
)


@dataclass(frozen=True, slots=True)
class Behind:
    """What a group does, and how far it is behind, over all its partitions."""

    state: str
    unread: int
    is_more: bool
    # How long ago the oldest unread message was published; None: everything is read.
    seconds: float | None
    halted: list[int]
    partitions: int
    # Whether a living worker serves its queue, or none is to.
    is_served: bool

    @property
    def shown(self) -> str:
        """The lag as text; "10,000+" where it was counted no further."""
        return human.count(self.unread, is_more=self.is_more)


def behind_of(
    row: Any,
    lags: Sequence[PartitionLag],
    plans: Collection[QueuePlan],
    *,
    limit: int = COUNTED_MESSAGES_MAX,
) -> Behind:
    """
    Return what a group does, and how far it is behind.

    Args:
        row: Of the group, with paused_at, queue and task.
        lags: Of its partitions.
        plans: What living workers serve.
        limit: Up to which messages were counted in each partition.
    """
    has_worker = has_reader(row, plans)
    states = {partition_state(each, is_served=has_worker) for each in lags}
    if row.paused_at is not None:
        states.add("paused")
    return Behind(
        state=next((word for word in URGENCY if word in states), "idle"),
        unread=sum(each.unread for each in lags),
        is_more=any(each.unread >= limit for each in lags),
        seconds=oldest(lags),
        halted=[each.partition for each in lags if each.halted_at is not None],
        partitions=len(lags),
        is_served=has_worker,
    )


def has_reader(row: Any, plans: Collection[QueuePlan]) -> bool:
    """Whether a living worker reads for a group; of one without a task, none is to."""
    return not row.task or is_served(row.queue, plans)


def partition_state(each: PartitionLag, *, is_served: bool) -> str:
    """Return what a group does in a partition; waiting needs a living worker."""
    return each.state if is_served or each.state != "waiting" else "unserved"


def oldest(lags: Sequence[PartitionLag]) -> float | None:
    """Return how many seconds ago the oldest unread message was published."""
    ages = [each.seconds for each in lags if each.seconds is not None]
    return max(ages, default=None)


def seek_preview(preview: SeekPreview) -> str:
    """Return what a seek would do: "12 messages would be read again, 0 skipped"."""
    again = human.count(preview.again, is_more=preview.is_more and preview.again > 0)
    skipped = human.count(
        preview.skipped, is_more=preview.is_more and preview.skipped > 0
    )
    messages = "message" if again == "1" else "messages"
    return f"{again} {messages} would be read again, {skipped} skipped"


def subscription_state(row: Any) -> str:
    """Return whether a subscription routes messages, and is still declared."""
    if row.disabled_at is not None:
        return "disabled"
    if row.is_stale:
        return "stale"
    if row.held_at is not None:
        return "held"
    if row.full_at is not None:
        return "full"
    return "enabled" if row.backfill_position is None else "back-filling"
