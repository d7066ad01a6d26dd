"""Databases of tests: how long they are open to tests, and when they can be removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

from tests.harness.waiting import wait_for

T = TypeVar("T")

# Autovacuum goes by itself when a database is copied or dropped.
GUESTS = """
SELECT pid, application_name, state, left(query, 200) FROM pg_stat_activity
 WHERE datname = %s AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


def wait_until_left(cursor: Any, name: str, seconds: float = 30.0) -> None:
    """
    Return once nobody is in a database, so that it can be copied or dropped.

    The session of a process that was killed outlives it for a moment. PostgreSQL
    itself waits 5 s for that, which are few on a busy machine, and names nobody.

    Args:
        cursor: In autocommit, in another database of the server.
        name: Of the database.
        seconds: On an idle machine.

    Raises:
        AssertionError: Somebody stays; a note says who, and what he does.
    """
    guests: list[Any] = []

    def is_left() -> bool:
        cursor.execute(GUESTS, [name])
        guests[:] = cursor.fetchall()
        return not guests

    try:
        wait_for(is_left, seconds, f"nobody is in {name}")
    except AssertionError as error:
        error.add_note(f"In {name}: {guests}")
        raise


@contextmanager
def lent(made: AbstractContextManager[T], blocker: Any) -> Iterator[T]:
    """
    Lend what *made* gives to many tests, but not the access to Django's databases.

    That is open while it is made and removed. Else it would be to all tests that come
    meanwhile, also to those that must not have it.

    Args:
        made: Enters and leaves with access.
        blocker: The fixture django_db_blocker.
    """
    with ExitStack() as stack:
        with blocker.unblock():
            value = stack.enter_context(made)
        try:
            yield value
        finally:
            with blocker.unblock():
                stack.close()
