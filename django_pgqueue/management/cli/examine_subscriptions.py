"""What the doctor asks of subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django_pgqueue.conf import Settings
from django_pgqueue.management.cli.examine_jobs import named
from django_pgqueue.management.cli.finding import Finding
from django_pgqueue.tasks.registry import find_sender
from django_pgqueue.topics.subscriptions import (
    STALE_AFTER,
    SubscriptionRow,
    find_all,
)


def subscriptions(cursor: Any, settings: Settings) -> Iterator[Finding]:
    """Does somebody want what every subscription routes, and can it run?"""
    rows = find_all(cursor)
    yield _stale([row for row in rows if row.is_stale])
    yield _tasks([row for row in rows if row.disabled_at is None and not row.is_stale])


def _stale(rows: list[SubscriptionRow]) -> Finding:
    return Finding(
        check="stale",
        severity="warning" if rows else "ok",
        what=f"Subscriptions were not declared for {STALE_AFTER.days} days, and still "
        f"make a job of each message: {named(list(map(str, rows)))}."
        if rows
        else "Every subscription of code is declared.",
        value=[str(row) for row in rows],
        limit=STALE_AFTER.total_seconds(),
        way_out="Disable or delete them in the admin, unless their code comes back."
        if rows
        else "",
    )


def _tasks(rows: list[SubscriptionRow]) -> Finding:
    unknown = [row for row in rows if find_sender(row.task) is None]
    return Finding(
        check="subscribed_tasks",
        severity="warning" if unknown else "ok",
        what=f"Subscriptions have a task that is not declared here: "
        f"{named(list(map(str, unknown)))}."
        if unknown
        else "The task of every subscription is declared.",
        value=[str(row) for row in unknown],
        way_out="Deploy the code that has it, or disable them; their jobs wait, and "
        "then are dead."
        if unknown
        else "",
    )
