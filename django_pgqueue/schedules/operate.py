"""
Operate: what people do with schedules.

The admin and the command line share these functions. Each opens a transaction on the
database of the jobs (a savepoint, where one is open), and tells schedulers after the
commit. Texts that name a person or a reason have the limits of tasks/operate.py.
"""

from __future__ import annotations

from functools import partial

from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.schedules import issue, store
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.definition import Definition
from django_pgqueue.schedules.issue import Issued
from django_pgqueue.schedules.store import ScheduleRow
from django_pgqueue.schedules.sync import tell_workers
from django_pgqueue.tasks import database
from django_pgqueue.tasks.operate import BY_CHARACTERS_MAX, checked_text, checked_texts


def pause(name: str, *, by: str = "", reason: str = "") -> bool:
    """
    Let a schedule rest: it has no ticks until it is resumed.

    Args:
        name: Of the schedule.
        by: Who pauses; at most 150 characters.
        reason: Why; at most 2,000 characters.

    Returns:
        False if there is none, or it was paused already; who and why stay as they are.

    Raises:
        InvalidOption: A text is too long.
    """
    by, reason = checked_texts(by, reason)
    with database.transaction() as (connection, cursor):
        done = store.pause(cursor, name, by=by, reason=reason)
        tell_workers(connection)
    return done


def resume(name: str) -> bool:
    """
    End the pause of a schedule; what was due meanwhile is not made up for.

    Returns:
        False if there is none, or it was not paused.
    """
    with database.transaction() as (connection, cursor):
        done = store.resume(cursor, name)
        tell_workers(connection)
    return done


def run_now(name: str, *, by: str = "") -> Issued | None:
    """
    Enqueue a schedule's job now, whether it is paused, and whatever runs already.

    Or publish its message. Its ticks go on as they were.

    Args:
        name: Of the schedule.
        by: Who asks; at most 150 characters.

    Returns:
        What became of it, without a job where another one has the dedup key of its
        task; None: there is no such schedule.
    """
    by = checked_text("by", by, BY_CHARACTERS_MAX)
    with database.transaction() as (connection, cursor):
        row = store.find_one(cursor, name)
        if row is None:
            return None
        issued = issue.run_now(cursor, row, by=by)
        for each in issued.wakes:
            wake_after_commit(connection, each)
        tell = partial(issue.tell, issued, late_seconds=0.0)
        connection.on_commit(tell, robust=True)
    return issued


def add(definition: Definition, *, by: str = "") -> int | None:
    """
    Make a schedule that no code declares.

    Args:
        definition: As define() returned it.
        by: Who makes it; at most 150 characters.

    Returns:
        Its id; None: there is one of this name, or code here declares one.
    """
    by = checked_text("by", by, BY_CHARACTERS_MAX)
    if definition.name in {each.name for each in declared()}:
        return None
    with database.transaction() as (connection, cursor):
        made = store.insert(
            cursor, definition.name, definition.values(), source="user", by=by
        )
        tell_workers(connection)
    return made


def change(definition: Definition, *, revision: int, by: str = "") -> list[str] | None:
    """
    Change a schedule; one of code is *overridden* then, unless it is as declared again.

    Args:
        definition: What holds from now on. Its name says which schedule.
        revision: Of the row that the caller has seen.
        by: Who changes it; at most 150 characters.

    Returns:
        The columns that are others now; None: the row has another revision by now, or
        is gone, and nothing was changed.
    """
    by = checked_text("by", by, BY_CHARACTERS_MAX)
    with database.transaction() as (connection, cursor):
        row = _taken(cursor, definition.name)
        if row is None or row.revision != revision:
            return None
        values = definition.values()
        changed = store.differing(row, values)
        if changed:
            is_code = row.declared is not None
            is_other = not store.is_same(row.declared_values, values)
            overridden = is_other if is_code else None
            store.change(cursor, row, values, overridden=overridden, by=by)
            tell_workers(connection)
    return changed


def reset(name: str) -> bool:
    """
    Let a schedule be as code declares it again.

    Returns:
        False if there is none, or it was so already.
    """
    with database.transaction() as (connection, cursor):
        row = _taken(cursor, name)
        if row is None or row.declared is None or row.overridden_at is None:
            return False
        store.change(cursor, row, row.declared_values, overridden=False)
        tell_workers(connection)
    return True


def delete(name: str) -> bool:
    """
    Delete a schedule and its ticks; jobs that it has enqueued stay.

    Returns:
        False if there is none, or code declares it.
    """
    with database.transaction() as (connection, cursor):
        done = store.delete(cursor, name)
        tell_workers(connection)
    return done


def _taken(cursor: Cursor, name: str) -> ScheduleRow | None:
    """Return the schedule, locked for this transaction."""
    return next(iter(store.take(cursor, [name])), None)
