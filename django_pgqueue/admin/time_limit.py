"""
Time limit: no page of the admin keeps the database busy for long.

What a page asks of the queue's database runs in one short transaction, whose statements
are cancelled after STATEMENT_SECONDS_MAX. SET LOCAL, in effect: right behind a pooler
too, and nothing is left behind on a connection that other requests will use.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from django.db import OperationalError

from django_pgqueue.conf import get_settings
from django_pgqueue.postgres import limited as by_alias
from django_pgqueue.postgres.limits import Plans

# Longer than any statement here takes, and shorter than a person's patience.
STATEMENT_SECONDS_MAX = 10

QUERY_CANCELED = "57014"


def limited(plans: Plans = Plans.ANY) -> AbstractContextManager[None]:
    """
    Open a transaction on PGQUEUE["DATABASE"] whose statements are limited.

    Args:
        plans: Which scans the statements may use.

    Raises:
        OperationalError: A statement took too long; see is_too_slow().
    """
    return by_alias.limited(
        get_settings().database, seconds=STATEMENT_SECONDS_MAX, plans=plans
    )


def is_too_slow(error: OperationalError) -> bool:
    """Return whether *error* is a statement that was cancelled for its time."""
    return getattr(error.__cause__, "sqlstate", None) == QUERY_CANCELED
