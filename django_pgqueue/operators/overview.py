"""
Overview: what waits, runs, failed and is stuck, and what is wrong, at one moment.

For the first page of the admin. Everything is read by the functions of the other pages
and of the commands, and every count stops somewhere, so that it costs the same however
large the tables are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.log.doctor import Halted
from django_pgqueue.log.groups import GroupRow, find_all
from django_pgqueue.log.ingest_lag import IngestLag, ingest_lag
from django_pgqueue.log.lag import PartitionLag, lags
from django_pgqueue.operators import workers
from django_pgqueue.operators.findings import (
    COMPENSATING_MAX,
    DEAD_LETTERS_MAX,
    DEAD_LETTERS_PERIOD,
    FAILURES_MAX,
    SEVERITIES,
    Finding,
    of_dead_letters,
    of_halted,
    of_queues,
    of_sagas,
    of_schedules,
    of_unserved,
    of_workers,
)
from django_pgqueue.operators.human import in_utc
from django_pgqueue.operators.states import Behind, behind_of, has_reader
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.doctor import Died, new_dead_letters, stuck_sagas
from django_pgqueue.queues.stats import QueueStats, all_names, queue_stats
from django_pgqueue.queues.workers import Leased
from django_pgqueue.schedules.store import ScheduleRow, database_now
from django_pgqueue.schedules.ticks import coming
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.serving import WORKERS_MAX, plans_of

# What can be asked for.
PARTS = (
    *("jobs", "dead_letters", "workers", "groups", "schedules", "workflows"),
    "ingests",
)

# Jobs counted, per queue and state; with many queues, so many of a state in all.
COUNTED_JOBS_MAX = 10_000
COUNTED_JOBS_OF_ALL_MAX = 20_000
COUNTED_JOBS_LEAST = 100

# Messages counted, per partition; with many groups, so many in a partition of all.
COUNTED_MESSAGES_MAX = 1_000
COUNTED_MESSAGES_OF_ALL_MAX = 10_000
COUNTED_MESSAGES_LEAST = 100

# Groups whose lag is read, schedules that are looked at, and topics by where they are
# ingested to whose lag is read.
GROUPS_MAX, SCHEDULES_MAX, INGESTS_MAX = 50, 50, 50

# Of the jobs that workers hold, those held longest.
HELD_JOBS_MAX = 10


@dataclass(frozen=True, slots=True)
class Overview:
    """
    What was read; None of a part that was not asked for.

    Attributes:
        clock: The database's time, in UTC.
        queues: How many jobs each has, by state.
        died: What gave up within DEAD_LETTERS_PERIOD, of the latest DEAD_LETTERS_MAX.
        workers: Rows with the clock, WORKERS_MAX of those that were heard of last.
        held: The jobs that workers hold, HELD_JOBS_MAX of those held longest.
        groups: Consumer groups with their lag, GROUPS_MAX by topic and name.
        groups_left_out: How many more there are.
        schedules: SCHEDULES_MAX of those that have the next ticks, and those that
            cannot have any.
        ingests: How far topics are behind where they are ingested to, INGESTS_MAX of
            those that were written to last.
        findings: What is not as it should be, the worst first.
    """

    clock: datetime
    queues: Sequence[QueueStats] | None
    died: Sequence[Died] | None
    workers: Sequence[Any] | None
    held: Sequence[Leased] | None
    groups: Sequence[tuple[GroupRow, Behind]] | None
    groups_left_out: int
    schedules: Sequence[ScheduleRow] | None
    ingests: Sequence[IngestLag] | None
    findings: Sequence[Finding]


def read(
    cursor: Cursor, parts: Collection[str] = PARTS, *, tells_keys: bool = True
) -> Overview:
    """
    Return the overview, or some *parts* of it, in seventeen short statements.

    Args:
        cursor: Django's, on the primary, in READ COMMITTED.
        parts: Names of PARTS. Who is not asked for workers is still told which queues
            none serves.
        tells_keys: Whether findings name the keys of workflows, which arguments make.
    """
    settings = get_settings()
    found: list[Finding] = []
    rows = workers.latest(WORKERS_MAX)
    clock = in_utc(rows[0].clock) if rows else database_now(cursor)
    seen = list(map(workers.seen, rows))
    plans = plans_of(seen)
    queues = died = held = groups = schedules = ingests = None
    left_out = 0
    if "workers" in parts:
        found += of_workers(seen)
        if "jobs" in parts:
            names = [row.name for row in rows]
            held = workers.held(cursor, names, limit=HELD_JOBS_MAX) if names else []
    if "jobs" in parts:
        queues = _queues(cursor)
        found += of_queues(queues, plans, settings.queue_limits)
    if "dead_letters" in parts:
        died = new_dead_letters(
            cursor, period=DEAD_LETTERS_PERIOD, limit=DEAD_LETTERS_MAX
        )
        found.append(of_dead_letters(died))
    if "workflows" in parts:
        stuck = stuck_sagas(cursor, attempts=FAILURES_MAX, limit=COMPENSATING_MAX)
        found.append(of_sagas(stuck, tells_keys=tells_keys))
    if "groups" in parts:
        every = find_all(cursor)
        left_out = max(len(every) - GROUPS_MAX, 0)
        groups, wrong = _groups(cursor, every[:GROUPS_MAX], plans, clock)
        found += wrong
    if "schedules" in parts:
        schedules = _schedules(cursor)
        by_name = sorted(schedules, key=lambda row: row.name)
        found += of_schedules(by_name, clock)
    if "ingests" in parts:
        ingests = ingest_lag(
            cursor, places=INGESTS_MAX, limit=_messages_each(INGESTS_MAX)
        )
    return Overview(
        clock=clock,
        queues=queues,
        died=died,
        workers=rows if "workers" in parts else None,
        held=held,
        groups=groups,
        groups_left_out=left_out,
        schedules=schedules,
        ingests=ingests,
        findings=sorted(
            (each for each in found if each.severity != "ok"),
            key=lambda each: -SEVERITIES.index(each.severity),
        ),
    )


def _queues(cursor: Cursor) -> list[QueueStats]:
    names = all_names(cursor)
    share = COUNTED_JOBS_OF_ALL_MAX // max(len(names), 1)
    most = max(min(COUNTED_JOBS_MAX, share), COUNTED_JOBS_LEAST)
    return queue_stats(cursor, names, most, get_settings().depths_max)


def _schedules(cursor: Cursor) -> list[ScheduleRow]:
    """Return the next schedules, with ticks in UTC whatever USE_TZ says."""
    return [
        row if row.next_tick is None else replace(row, next_tick=in_utc(row.next_tick))
        for row in coming(cursor, limit=SCHEDULES_MAX)
    ]


def _groups(
    cursor: Cursor,
    rows: Sequence[GroupRow],
    plans: Collection[QueuePlan],
    clock: datetime,
) -> tuple[list[tuple[GroupRow, Behind]], list[Finding]]:
    """Return the groups with their lag, and what is wrong with them."""
    if not rows:
        return [], []
    limit = _messages_each(len(rows))
    found = lags(cursor, [row.id for row in rows], limit=limit)
    behind = [(row, behind_of(row, found[row.id], plans, limit=limit)) for row in rows]
    unserved = {
        row: found[row.id]
        for row in rows
        if row.paused_at is None and not row.is_stale and not has_reader(row, plans)
    }
    halted = [each for row in rows for each in _halted(row, found[row.id], clock)]
    return behind, [*of_unserved(unserved, limit=limit), of_halted(halted)]


def _messages_each(rows: int) -> int:
    """Return how many messages are counted in a partition, for each of so many."""
    share = COUNTED_MESSAGES_OF_ALL_MAX // rows
    return max(min(COUNTED_MESSAGES_MAX, share), COUNTED_MESSAGES_LEAST)


def _halted(
    row: GroupRow, each_of: Sequence[PartitionLag], clock: datetime
) -> Iterator[Halted]:
    """Return the halted partitions of a group, without what their errors say."""
    for why in ("error", "retention"):
        since = [
            in_utc(each.halted_at)
            for each in each_of
            if each.halted_at is not None and each.halted_for == why
        ]
        if since:
            seconds = (clock - min(since)).total_seconds()
            yield Halted(row.topic, row.name, why, len(since), seconds, None)
