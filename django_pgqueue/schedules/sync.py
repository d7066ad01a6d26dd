"""Sync: what code declares becomes rows."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.runs import schedules
from django_pgqueue.schedules.declare import declared

logger = logging.getLogger("django_pgqueue.schedules")

# Workers are told to look at the schedules; in no queue's name is there a "!".
HINT = "!schedules"


class Synced(NamedTuple):
    """What sync() has done: names of schedules."""

    changed: list[str]
    withdrawn: list[str]
    # A user has made one under a name that code declares; it was left alone.
    taken: list[str]


def sync(cursor: Any, *, withdraws: bool) -> Synced:
    """
    Write what code declares; the caller has a transaction open.

    Args:
        cursor: Of the database of the jobs.
        withdraws: Whether schedules of code that are not declared any more rest from
            now on. A migration does that; a worker that starts does not, since one
            with older code may start beside it.

    Raises:
        ScheduleError: settings.TIME_ZONE is no good for a schedule without tz=.
    """
    values = {each.name: each.values() for each in declared()}
    changed, taken = schedules.declare_all(cursor, values)
    withdrawn = schedules.withdraw_others(cursor, list(values)) if withdraws else []
    for name in taken:
        logger.warning(
            "schedule   name=%r is declared by code, and a user has made one of this "
            "name: that one holds",
            name,
        )
    return Synced(changed, withdrawn, taken)


def tell_workers(connection: Any) -> None:
    """Let schedulers look at once at what was changed, after the commit."""
    wake_after_commit(connection, HINT)
