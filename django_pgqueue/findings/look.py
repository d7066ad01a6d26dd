"""
Look: what the database says at one moment, for findings and for who shows them.

Every count stops somewhere, so that a look costs the same however large the tables are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django_pgqueue.conf import readable_settings
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.groups import find_all as find_groups
from django_pgqueue.log.ingest_lag import IngestLag, ingest_lag
from django_pgqueue.log.lag import lags
from django_pgqueue.log.subscriptions import SubscriptionRow
from django_pgqueue.log.subscriptions import find_all as find_subscriptions
from django_pgqueue.operators import workers
from django_pgqueue.operators.human import in_utc
from django_pgqueue.operators.states import Behind, behind_of
from django_pgqueue.postgres.cursor import Cursor, records
from django_pgqueue.queues import doctor
from django_pgqueue.queues.stats import QueueStats, all_names, queue_stats
from django_pgqueue.queues.workers import Leased
from django_pgqueue.schedules.store import ScheduleRow, database_now, find_all
from django_pgqueue.schedules.ticks import coming
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.serving import WORKERS_MAX, plans_of

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

# Jobs that gave up within this are shown, counted up to so many.
DEAD_LETTERS_PERIOD = timedelta(hours=24)
DEAD_LETTERS_MAX = 10_000


class Look:
    """Reads each thing when it is first asked for, and only once."""

    def __init__(
        self, cursor: Cursor, *, is_bounded: bool = False, tells_keys: bool = True
    ) -> None:
        """
        Begin a look.

        Args:
            cursor: On the primary, in READ COMMITTED.
            is_bounded: Whether only the first groups and schedules are looked at, and
                errors are left out: for the overview.
            tells_keys: Whether the keys of workflows are shown, which arguments make.
        """
        self.cursor = cursor
        self.is_bounded = is_bounded
        self.tells_keys = tells_keys
        self.settings = readable_settings()

    def rows(self, statement: str, **params: Any) -> list[Any]:
        """Run a statement of the storage; see records()."""
        return records(self.cursor, statement, **params)

    @cached_property
    def clock(self) -> datetime:
        """The database's time, in UTC."""
        return database_now(self.cursor)

    @cached_property
    def workers(self) -> list[doctor.Seen]:
        """The WORKERS_MAX workers that were heard of last."""
        return doctor.workers_seen(self.cursor, limit=WORKERS_MAX)

    @cached_property
    def plans(self) -> set[QueuePlan]:
        """What living workers serve."""
        return plans_of(self.workers)

    @cached_property
    def held(self) -> list[Leased]:
        """The HELD_JOBS_MAX jobs that workers have held for longest."""
        names = [worker.name for worker in self.workers]
        if not names:
            return []
        return workers.held(self.cursor, names, limit=HELD_JOBS_MAX)

    @cached_property
    def queues(self) -> list[QueueStats]:
        """How many jobs each queue has, by state."""
        names = all_names(self.cursor)
        share = COUNTED_JOBS_OF_ALL_MAX // max(len(names), 1)
        most = max(min(COUNTED_JOBS_MAX, share), COUNTED_JOBS_LEAST)
        return queue_stats(self.cursor, names, most, self.settings.depths_max)

    @cached_property
    def died(self) -> list[Any]:
        """How many jobs gave up lately, by task and reason, of DEAD_LETTERS_MAX."""
        return self.rows(
            doctor.NEW_DEAD_LETTERS, period=DEAD_LETTERS_PERIOD, limit=DEAD_LETTERS_MAX
        )

    @cached_property
    def groups(self) -> list[GroupRow]:
        """All consumer groups, by topic and name."""
        return find_groups(self.cursor)

    @property
    def groups_shown(self) -> Sequence[GroupRow]:
        """Those that are looked at."""
        return self.groups[:GROUPS_MAX] if self.is_bounded else self.groups

    @cached_property
    def behind(self) -> list[tuple[GroupRow, Behind]]:
        """The groups that are looked at, with their lag."""
        rows = self.groups_shown
        limit = messages_each(len(rows))
        found = lags(self.cursor, [row.id for row in rows], limit=limit) if rows else {}
        return [
            (row, behind_of(row, found[row.id], self.plans, limit=limit))
            for row in rows
        ]

    @cached_property
    def schedules(self) -> list[ScheduleRow]:
        """All schedules by name; or SCHEDULES_MAX of the next, and of those without."""
        if self.is_bounded:
            rows = coming(self.cursor, limit=SCHEDULES_MAX)
        else:
            rows = find_all(self.cursor)
        return [
            row
            if row.next_tick is None
            else replace(row, next_tick=in_utc(row.next_tick))
            for row in rows
        ]

    @cached_property
    def subscriptions(self) -> list[SubscriptionRow]:
        """All subscriptions."""
        return find_subscriptions(self.cursor)

    @cached_property
    def ingests(self) -> list[IngestLag]:
        """How far topics are behind where they are ingested to, INGESTS_MAX of them."""
        limit = messages_each(INGESTS_MAX)
        return ingest_lag(self.cursor, places=INGESTS_MAX, limit=limit)


def messages_each(rows: int) -> int:
    """Return how many messages are counted in a partition, for each of so many."""
    share = COUNTED_MESSAGES_OF_ALL_MAX // max(rows, 1)
    return max(min(COUNTED_MESSAGES_MAX, share), COUNTED_MESSAGES_LEAST)
