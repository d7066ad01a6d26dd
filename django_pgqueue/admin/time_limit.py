"""
Time limit: no page of the admin keeps the database busy for long.

What a page asks of the queue's database runs in one short transaction, whose statements
are cancelled after STATEMENT_SECONDS_MAX. SET LOCAL, in effect: right behind a pooler
too, and nothing is left behind on a connection that other requests will use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connections, transaction

from django_pgqueue.conf import get_settings
from django_pgqueue.postgres.limits import Plans, limit, restore

# Longer than any statement here takes, and shorter than a person's patience.
STATEMENT_SECONDS_MAX = 10

QUERY_CANCELED = "57014"


@contextmanager
def limited(plans: Plans = Plans.ANY) -> Iterator[None]:
    """
    Open a transaction on PGQUEUE["DATABASE"] whose statements are limited.

    Args:
        plans: Which scans the statements may use.

    Raises:
        OperationalError: A statement took too long; see is_too_slow().
    """
    connection = connections[get_settings().database]
    is_nested = connection.in_atomic_block
    with transaction.atomic(using=connection.alias):
        with connection.cursor() as cursor:
            before = limit(cursor, seconds=STATEMENT_SECONDS_MAX, plans=plans)
        yield
        # ATOMIC_REQUESTS: the transaction goes on without us. Where it fails, the
        # rollback to the savepoint restores by itself.
        if is_nested:
            with connection.cursor() as cursor:
                restore(cursor, before)


def is_too_slow(error: OperationalError) -> bool:
    """Return whether *error* is a statement that was cancelled for its time."""
    return getattr(error.__cause__, "sqlstate", None) == QUERY_CANCELED
