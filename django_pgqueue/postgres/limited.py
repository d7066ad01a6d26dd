"""Limited: a transaction on a connection of Django's whose statements are limited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction

from django_pgqueue.postgres.limits import Plans, limit, restore


@contextmanager
def limited(alias: str, *, seconds: int, plans: Plans = Plans.ANY) -> Iterator[None]:
    """
    Open a transaction on Django's *alias* whose statements are limited.

    Args:
        alias: A key of DATABASES.
        seconds: What a statement may take.
        plans: Which scans the statements may use.

    Raises:
        OperationalError: Django's; a statement took too long.
    """
    connection = connections[alias]
    is_nested = connection.in_atomic_block
    with transaction.atomic(using=alias):
        with connection.cursor() as cursor:
            before = limit(cursor, seconds=seconds, plans=plans)
        yield
        # ATOMIC_REQUESTS: the transaction goes on without us. Where it fails, the
        # rollback to the savepoint restores by itself.
        if is_nested:
            with connection.cursor() as cursor:
                restore(cursor, before)
