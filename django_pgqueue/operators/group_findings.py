"""Group findings: what the positions of consumer groups say is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from django_pgqueue.log.doctor import Halted
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.lag import PartitionLag
from django_pgqueue.operators.findings import START_FOR, Finding, finding, named
from django_pgqueue.operators.human import age, shown
from django_pgqueue.operators.states import oldest


def of_unserved(
    lags: Mapping[GroupRow, Sequence[PartitionLag]], *, limit: int
) -> Iterator[Finding]:
    """
    Has a group that no living worker serves messages to read?

    Args:
        lags: Of such groups, but for those that are paused.
        limit: How far the messages of each partition were counted.
    """
    is_found = False
    for row, each_of in lags.items():
        waiting = [each for each in each_of if each.state == "waiting"]
        if waiting:
            is_found = True
            yield _waits(row, waiting, limit)
    if not is_found:
        yield Finding(
            check="groups_unserved",
            severity="ok",
            what="Every group that has messages to read has a living worker, or is "
            "paused.",
        )


def of_halted(found: Sequence[Halted]) -> Finding:
    """Are there positions that nobody reads on from?"""
    told = [
        f"{each.topic}/{each.group}, {each.partitions} partition"
        f"{'' if each.partitions == 1 else 's'}, for {each.halted_for}, since "
        f"{age(each.seconds)}"
        for each in found
    ]
    first = next((each.message for each in found if each.message), "")
    return finding(
        check="groups_halted",
        wrong=found,
        what=f"Groups are halted: {named(told)}. {shown(first)}".strip(),
        right="No group is halted.",
        severity="error",
        value=[f"{each.topic}/{each.group}" for each in found],
        way_out="After an error: fix it, then manage.py pgqueue groups read-on. After "
        "retention: manage.py pgqueue seek, to 'earliest' for what is left.",
    )


def _waits(row: GroupRow, waiting: Sequence[PartitionLag], limit: int) -> Finding:
    unread = sum(each.unread for each in waiting)
    more = any(each.unread >= limit for each in waiting)
    return Finding(
        check="groups_unserved",
        severity="error",
        what=f"Group {shown(row)} has {unread:,}{' or more' if more else ''} unread "
        f"message{'' if unread == 1 else 's'}, the oldest for "
        f"{age(oldest(waiting) or 0.0)}, and no living worker serves its queue "
        f"{shown(row.queue)}.",
        value=unread,
        limit=0,
        way_out=f"{START_FOR}{shown(row.queue)}",
    )
