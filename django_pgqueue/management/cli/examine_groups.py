"""What the doctor asks of consumer groups: who reads for them, and who wants them."""

from __future__ import annotations

from collections.abc import Iterator

from django_pgqueue.conf import Settings
from django_pgqueue.log.groups import GroupRow, find_all
from django_pgqueue.log.lag import lags
from django_pgqueue.log.subscriptions import STALE_AFTER
from django_pgqueue.operators.findings import Finding, finding, named
from django_pgqueue.operators.group_findings import of_unserved
from django_pgqueue.operators.paging import STATEMENT_SECONDS_MAX
from django_pgqueue.operators.states import has_reader
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.topics.consume import declared
from django_pgqueue.worker.serving import living_plans

# Messages counted of each partition of a group that nobody reads for.
UNREAD_MESSAGES_MAX = 1_000


def groups(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Does a living worker read for every group, and does code still declare it?"""
    rows = find_all(cursor)
    # What the code here declares is not without code, however long no worker ran.
    here = {(each.topic, each.group) for each in declared()}
    stale = [row for row in rows if row.is_stale and (row.topic, row.name) not in here]
    # More workers do not help one that has no code.
    yield from _unserved(cursor, [row for row in rows if row not in stale])
    yield _stale(stale)


def _unserved(cursor: Cursor, rows: list[GroupRow]) -> Iterator[Finding]:
    plans = living_plans(cursor)
    unserved = [
        row for row in rows if row.paused_at is None and not has_reader(row, plans)
    ]
    limit(cursor, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER)
    found = lags(cursor, [row.id for row in unserved], limit=UNREAD_MESSAGES_MAX)
    yield from of_unserved(
        {row: found[row.id] for row in unserved}, limit=UNREAD_MESSAGES_MAX
    )


def _stale(rows: list[GroupRow]) -> Finding:
    return finding(
        check="groups_stale",
        wrong=rows,
        what=f"Groups were not declared for {STALE_AFTER.days} days, and nobody reads "
        f"for them: {named(list(map(str, rows)))}.",
        right="Every group is declared.",
        value=[str(row) for row in rows],
        limit=STALE_AFTER.total_seconds(),
        way_out="Unless their code comes back: manage.py pgqueue groups pause "
        "TOPIC/GROUP, then manage.py pgqueue groups forget TOPIC/GROUP",
    )
