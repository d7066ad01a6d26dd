"""
Summary: the few numbers and short lists that the first page of the admin shows.

Pure functions of what storage has read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django_pgqueue.log.groups import GroupRow
from django_pgqueue.operators import human
from django_pgqueue.operators.findings import DEAD_LETTERS_MAX
from django_pgqueue.operators.overview import Overview
from django_pgqueue.operators.states import Behind
from django_pgqueue.queues.doctor import Died
from django_pgqueue.queues.stats import QueueStats


class Deaths(NamedTuple):
    """How many jobs of a task gave up, of those that were counted."""

    task: str
    in_hour: int
    in_day: int


def total(queues: Sequence[QueueStats], state: str) -> str:
    """Return how many jobs of a *state* there are; "10,000+" where more may be."""
    number = sum(getattr(each, state) for each in queues)
    return human.count(number, is_more=any(each.is_more(state) for each in queues))


def oldest_ready(queues: Sequence[QueueStats]) -> tuple[str, float] | None:
    """Return where a job has been due for longest, and for how many seconds."""
    waits = {each.name: each.oldest_ready_seconds for each in queues}
    known = {queue: wait for queue, wait in waits.items() if wait is not None}
    worst = max(known, key=lambda queue: known[queue], default=None)
    return None if worst is None else (worst, known[worst])


def dead(died: Sequence[Died]) -> tuple[str, str]:
    """Return how many gave up in the last hour, and in the last day."""
    of_day = sum(each.jobs for each in died)
    of_hour = sum(each.in_hour for each in died)
    is_more = of_day >= DEAD_LETTERS_MAX
    return (
        human.count(of_hour, is_more=is_more and of_hour == of_day),
        human.count(of_day, is_more=is_more),
    )


def dead_by_task(died: Sequence[Died]) -> list[Deaths]:
    """Return the tasks of what gave up, those with the most of a day first."""
    tasks: dict[str, Deaths] = {}
    for each in died:
        before = tasks.get(each.task, Deaths(each.task, 0, 0))
        tasks[each.task] = Deaths(
            each.task, before.in_hour + each.in_hour, before.in_day + each.jobs
        )
    return sorted(tasks.values(), key=lambda each: (-each.in_day, each.task))


def unread(now: Overview) -> tuple[str, float | None]:
    """Return how many messages no group has read, and the age of the oldest."""
    groups = now.groups or ()
    number = sum(behind.unread for _row, behind in groups)
    is_more = any(behind.is_more for _row, behind in groups)
    ages = [behind.seconds for _row, behind in groups if behind.seconds is not None]
    return (
        human.count(number, is_more=is_more or now.groups_left_out > 0),
        max(ages, default=None),
    )


def by_lag(now: Overview) -> list[tuple[GroupRow, Behind]]:
    """Return the groups, those that are furthest behind first."""
    return sorted(
        now.groups or (),
        key=lambda pair: (-(pair[1].seconds or 0.0), -pair[1].unread, str(pair[0])),
    )
