"""Sync: what code declares becomes rows."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.schedules import store
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.store import HINT

logger = logging.getLogger("django_pgqueue.schedules")


class Synced(NamedTuple):
    """What sync() has done: names of schedules."""

    changed: list[str]
    withdrawn: list[str]
    # Withdrawn before, and declared here; they rest on.
    resting: list[str]
    # A user has made one under a name that code declares; it was left alone.
    taken: list[str]


def sync(cursor: Cursor, *, migrates: bool) -> Synced:
    """
    Write what code declares; the caller has a transaction open.

    Args:
        cursor: Of the database of the jobs.
        migrates: Whether this is a migration, which says which schedules there are:
            one that is not declared any more rests from now on, and one that is again
            has ticks again. A worker that starts has no say in that, since its code
            may be older: else one of the last deploy, started anew, would bring back
            for good what this deploy has withdrawn.

    Raises:
        ScheduleError: settings.TIME_ZONE is no good for a schedule without tz=.
    """
    values = {each.name: each.values() for each in declared()}
    changed, taken, resting = store.declare_all(cursor, values, revives=migrates)
    withdrawn = store.withdraw_others(cursor, list(values)) if migrates else []
    for name in resting:
        logger.warning(
            "schedule   name=%r is declared by this code, and a migration has "
            "withdrawn it: if this code is the newer one, run manage.py migrate",
            name,
        )
    for name in taken:
        logger.warning(
            "schedule   name=%r is declared by code, and a user has made one of this "
            "name: that one holds",
            name,
        )
    return Synced(changed, withdrawn, resting, taken)


def tell_workers(connection: Any) -> None:
    """Let schedulers look at once at what was changed, after the commit."""
    wake_after_commit(connection, HINT)
