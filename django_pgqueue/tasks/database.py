"""Database: Django's connection to that of the jobs, in this thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from django_pgqueue.conf import get_settings
from django_pgqueue.postgres.cursor import Cursor

T = TypeVar("T")


@contextmanager
def cursor() -> Iterator[Cursor]:
    """Open a cursor: in the transaction that is open, or in none."""
    from django.db import connections

    with connections[get_settings().database].cursor() as opened:
        yield opened


@contextmanager
def transaction() -> Iterator[tuple[Any, Cursor]]:
    """Open a transaction, or a savepoint in one; give its connection and a cursor."""
    from django.db import connections, transaction

    connection = connections[get_settings().database]
    with transaction.atomic(using=connection.alias), connection.cursor() as opened:
        yield connection, opened


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Run *function* where Django's connections are; context variables are kept."""
    return await sync_to_async(function)(*args)
