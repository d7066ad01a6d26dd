"""What the doctor asks of subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django_pgqueue.conf import Settings
from django_pgqueue.exceptions import TopicError
from django_pgqueue.log.backlogs import FullOne, find_full
from django_pgqueue.log.names import Pattern
from django_pgqueue.log.retain_backfills import (
    BackfillBehind,
    behind_backfills,
    lost_lately,
)
from django_pgqueue.log.subscriptions import (
    STALE_AFTER,
    SubscriptionRow,
    find_all,
)
from django_pgqueue.management.cli.examine_topics import RETENTION_SHARE_MAX
from django_pgqueue.operators.findings import Finding, finding, named
from django_pgqueue.operators.human import age, duration, share
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.tasks import registry

# What one that is full does; None: its code says no bound any more.
DOES = {
    "pause": "its messages stay in the log",
    "drop_oldest": "its oldest jobs are cancelled",
    "refuse": "its messages are refused",
    None: "it is let go",
}

# A loss is told for so long.
LOST_LATELY = timedelta(days=7)


def subscriptions(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Does somebody want what every subscription routes, and can it run?"""
    rows = find_all(cursor)
    yield _stale([row for row in rows if row.is_stale])
    yield _tasks([row for row in rows if row.disabled_at is None and not row.is_stale])
    yield _patterns([row for row in rows if row.disabled_at is None])
    yield _full(find_full(cursor))
    default = settings.retention.log
    yield _behind(behind_backfills(cursor, default=default, share=RETENTION_SHARE_MAX))
    yield _lost(lost_lately(cursor, period=LOST_LATELY))


def _full(found: list[FullOne]) -> Finding:
    told = [
        f"{each} ({share(each.jobs or 0, each.depth_max or 0)}, {DOES[each.on_full]}, "
        f"for {age(each.seconds)})"
        for each in found
    ]
    return finding(
        check="backlogs",
        wrong=found,
        what=f"Subscriptions have as many jobs as may wait: {named(told)}.",
        right="Every subscription with a backlog has room.",
        value=[str(each) for each in found],
        way_out="Run more workers for their queues, or allow more: "
        "@subscribe(…, backlog=…). What stays in the log goes with its retention.",
    )


def _behind(found: list[BackfillBehind]) -> Finding:
    told = [
        f"{each}{' (disabled)' if each.is_disabled else ''}: a message of {each.topic} "
        f"is {age(each.seconds)} old, kept for {duration(each.keep_seconds)}"
        for each in found
    ]
    return finding(
        check="backfills_behind",
        wrong=found,
        what=f"Back-fills are about to lose messages: {named(told)}.",
        right="No back-fill is about to lose messages that have no job yet.",
        value=[str(each) for each in found],
        limit=RETENTION_SHARE_MAX,
        way_out="Enable the subscription, delete it, or keep its topic's messages for "
        "longer: topic(…, retain=…).",
    )


def _lost(found: list[tuple[str, str, str]]) -> Finding:
    told = [f"{pattern} → {queue}: {message}" for pattern, queue, message in found]
    return finding(
        check="backfills_lost",
        wrong=found,
        what=f"Back-fills lost messages in the last {LOST_LATELY.days} days. "
        f"{named(told)}",
        right=f"No back-fill lost messages in the last {LOST_LATELY.days} days.",
        value=[f"{pattern} → {queue}" for pattern, queue, _message in found],
        way_out="They are gone, and have no job. It is told for "
        f"{LOST_LATELY.days} days.",
    )


def _stale(rows: list[SubscriptionRow]) -> Finding:
    return finding(
        check="stale",
        wrong=rows,
        what=f"Subscriptions were not declared for {STALE_AFTER.days} days, and still "
        f"make a job of each message: {named(list(map(str, rows)))}.",
        right="Every subscription of code is declared.",
        value=[str(row) for row in rows],
        limit=STALE_AFTER.total_seconds(),
        way_out="Disable or delete them in the admin, unless their code comes back.",
    )


def _tasks(rows: list[SubscriptionRow]) -> Finding:
    unknown = [row for row in rows if row.task not in registry.tasks]
    return finding(
        check="subscribed_tasks",
        wrong=unknown,
        what=f"Subscriptions have a task that is not declared here: "
        f"{named(list(map(str, unknown)))}.",
        right="The task of every subscription is declared.",
        value=[str(row) for row in unknown],
        way_out="Deploy the code that has it, or disable them; their jobs wait, and "
        "then are dead.",
    )


def _patterns(rows: list[SubscriptionRow]) -> Finding:
    wrong = [row for row in rows if not _is_sound(row)]
    return finding(
        check="patterns",
        wrong=wrong,
        what=f"Subscriptions have a topic or an expression that their pattern does not "
        f"mean; the pattern counts, and what is none selects nothing: "
        f"{named(list(map(str, wrong)))}.",
        right="Every subscription has a pattern that means its topic.",
        severity="error",
        value=[str(row) for row in wrong],
        way_out="Delete them, and declare with @subscribe what was meant.",
    )


def _is_sound(row: SubscriptionRow) -> bool:
    try:
        meant = Pattern.parse(row.pattern)
    except TopicError:
        return False
    return row.topic == meant.topic and row.regex in (None, meant.regex)
