"""Pull queues: what code has declared of them."""

from __future__ import annotations

from django_pgqueue.exceptions import DeclarationError
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import pull as storage
from django_pgqueue.queues.pull import DeclaredQueue
from django_pgqueue.tasks.options import pull_queues

_declared: dict[str, DeclaredQueue] = {}


def declare(queue: DeclaredQueue) -> None:
    """
    Remember what is said of a pull queue.

    Raises:
        DeclarationError: Something else was said of it before.
    """
    before = _declared.setdefault(queue.name, queue)
    if before != queue:
        raise DeclarationError(
            f"queue({queue.name!r}) is declared twice: with visibility_seconds="
            f"{before.visibility_seconds}, max_receives={before.max_receives} and with "
            f"visibility_seconds={queue.visibility_seconds}, "
            f"max_receives={queue.max_receives}. Declare it in one place, and import "
            f"it."
        )

    pull_queues.add(queue.name)


def declared() -> list[DeclaredQueue]:
    """Return the pull queues that code declares, by name."""
    return [_declared[name] for name in sorted(_declared)]


def sync_queues(cursor: Cursor) -> None:
    """
    Let the database have what code says of pull queues, in the order of their names.

    A database that was migrated back has none.
    """
    if _declared and storage.has_pull_queues(cursor):
        for queue in declared():
            storage.declare(cursor, queue, changes=True)
