"""
Isolation: what a job must not leave behind for the next one in its thread.

A web request gets its connections from Django's signals, and its language and time zone
end with it. A worker has no requests, so it does the same around each job. A stale
connection is closed before a job uses it. A connection that a job left inside a
transaction, or whose session it changed (SET, an advisory lock, a temporary table), is
closed after the job. A wrapper of somebody else's class whose attributes a job changed,
as set_schema() of django-tenants does, is replaced. Each job runs in a context of its
own (contextvars), so the active language, time zone and decimal context end with it.

Nothing else is reset; see docs/reference/worker-isolation.md.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from django.db import connections, reset_queries
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from django_pgqueue.postgres import session
from django_pgqueue.topics.captured import Captured

logger = logging.getLogger("django_pgqueue.worker")


def new_thread(
    function: Callable[..., None], *args: Any, name: str
) -> threading.Thread:
    """
    Return a daemon thread whose context is empty, whatever Python's default is.

    A job runs in a copy of it. Of a value that can be changed, such as the decimal
    context, the copy is the same one.
    """
    return threading.Thread(
        target=contextvars.Context().run, args=(function, *args), name=name, daemon=True
    )


def prepare_thread() -> None:
    """
    Make what all jobs of this thread share: its cache clients and foreign wrappers.

    Django keeps cache clients in a context variable: a job that made its own would
    connect anew each time. Database wrappers that are none of Django's own are made
    without connecting, so that what a job changes about one is noticed, also if it
    sends no query. What cannot be made says so to the task that uses it.
    """
    from django.core.cache import caches

    for alias in settings.CACHES:
        with contextlib.suppress(Exception):
            caches[alias]
    for alias in connections:
        with contextlib.suppress(Exception):
            _note_foreign(connections[alias])


class Opened(threading.local):
    """What this thread has opened, ever: connections.all() takes as long as a job."""

    def __init__(self) -> None:
        self.connections: list[Any] = []
        # By the id of a wrapper that is none of Django's own: what a new one holds.
        self.pristine: dict[int, dict[str, Any]] = {}


opened = Opened()


def watch_connections() -> None:
    """Notice from now on what is done to the sessions of new connections."""
    connection_created.connect(_watch, dispatch_uid="django_pgqueue.cleanup")


def clean_connections() -> None:
    """
    Close what is stale, broken or inside a transaction, in this thread.

    Never raises: the outcome of the job that has just ended is still to be settled.
    """
    found = connections.all(initialized_only=True)
    for connection in found:
        _note_foreign(connection)
    _clean_each(found)


def clean_after_job() -> None:
    """
    Do the same for what was opened since watch_connections(), between two jobs.

    Most jobs of a short task open nothing, and then it costs nothing.
    """
    if opened.connections or settings.DEBUG:
        _clean_each(opened.connections)


def _clean_each(found: Iterable[Any]) -> None:
    for connection in list(found):
        try:
            _clean(connection)
        except Exception as error:
            logger.warning("closing    alias=%s error=%r", connection.alias, error)
            connection.connection = None
        if id(connection) in opened.pristine:
            _replace_if_changed(connection)
    if settings.DEBUG:
        reset_queries()


def _watch(sender: Any, connection: Any, **fields: Any) -> None:
    _note_foreign(connection)
    if not any(known is connection for known in opened.connections):
        opened.connections.append(connection)
    if connection.vendor == "postgresql" and hasattr(connection.connection, "info"):
        session.watch(connection.connection)


def _note_foreign(connection: Any) -> None:
    """Note what a wrapper that is none of Django's own holds when it is new."""
    is_djangos = type(connection).__module__.startswith("django.db.backends.")
    if is_djangos or id(connection) in opened.pristine:
        return
    new, other = (
        _own_attributes(connections.create_connection(connection.alias))
        for _ in range(2)
    )
    # Of what each has for itself, such as a lock, nobody can say that it was changed.
    opened.pristine[id(connection)] = {
        name: value for name, value in new.items() if other.get(name) == value
    }
    if not any(known is connection for known in opened.connections):
        opened.connections.append(connection)


def _own_attributes(connection: Any) -> dict[str, Any]:
    """Return what a wrapper holds that Django's do not."""
    return {
        name: getattr(value, "__dict__", value)
        for name, value in vars(connection).items()
        if name not in _django_attributes() and not hasattr(type(connection), name)
    }


@functools.cache
def _django_attributes() -> frozenset[str]:
    from django.db.backends.postgresql.base import DatabaseWrapper

    return frozenset(vars(DatabaseWrapper({})))


def _replace_if_changed(connection: Any) -> None:
    """Let the next job have a new wrapper, if this one is not as it was made."""
    pristine = opened.pristine[id(connection)]
    own = _own_attributes(connection)
    if all(own.get(name) == value for name, value in pristine.items()):
        return
    logger.debug("session    alias=%s replaced after: a new tenant", connection.alias)
    connection.close()
    opened.connections.remove(connection)
    del opened.pristine[id(connection)]
    if connections[connection.alias] is connection:
        del connections[connection.alias]
        _note_foreign(connections[connection.alias])


def _clean(connection: Any) -> None:
    if connection.connection is None:
        return
    wrappers = connection.execute_wrappers
    if any(not isinstance(wrapper, Captured) for wrapper in wrappers):
        wrappers[:] = [each for each in wrappers if isinstance(each, Captured)]
    if not connection.in_atomic_block and _is_idle(connection.connection):
        if _is_as_it_was(connection):
            _close_cursors(connection)
            connection.close_if_unusable_or_obsolete()
            return
        # Closed for good: a pool would lend it to somebody else as it is.
        connection.connection.close()
    # A task that opened a transaction by hand and forgot it: rolled back.
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.needs_rollback = False
    connection.run_on_commit = []
    connection.closed_in_transaction = False
    connection.close()


def _is_as_it_was(connection: Any) -> bool:
    """Whether a job left nothing in the session; see postgres/session.py."""
    watched = getattr(connection.connection, session.MARK, None)
    left = None if watched is None else watched.what_is_left(connection.connection)
    if left is not None:
        logger.debug("session    alias=%s replaced after: %s", connection.alias, left)
    return left is None


def _close_cursors(connection: Any) -> None:
    """Close what iterator() has left open, if it was called since the last time."""
    count = getattr(connection, "_named_cursor_idx", 0)
    watched = getattr(connection.connection, session.MARK, None)
    if watched is not None and count != watched.named_cursors:
        watched.named_cursors = count
        session.close_cursors(connection.connection)


def _is_idle(raw: object) -> bool:
    info = getattr(raw, "info", None)
    # Another engine than psycopg on another alias: Django's own check must do.
    return info is None or info.transaction_status == TransactionStatus.IDLE
