"""
Trusted clock: the database's, but never faster than time passes where a worker runs.

A clock that is days ahead for a minute would close the day that it is, and have all
removed that is kept for days. So what cannot be undone goes by a time that is stored
and that the leader moves on: up to the clock, and no further than RATE times what has
passed by its own monotonic clock, which no setting of a clock changes. It is the clock
itself as long as a worker leads. After a jump, or when none has led for a while, it
catches up, a day in an hour; a clock that is set right meanwhile has done no harm.
"""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue.postgres.cursor import Cursor, one_row

# How much faster than time it may go.
RATE = 24

# What one step may count as passed, so that one look at a wrong clock moves it by less
# than an hour. The leader takes a step every minute.
PASSED_SECONDS_MAX = 120

# An SQL expression: now, for what cannot be undone. A clock that nobody has moved yet
# is the database's. Locks: none.
TRUSTED_NOW = "least(statement_timestamp(), (SELECT trusted_at FROM pgqueue_clock))"

# Locks: a row lock on the one row, for the statement.
ADVANCE = """
INSERT INTO pgqueue_clock AS c (id, trusted_at) VALUES (1, clock_timestamp())
ON CONFLICT (id) DO UPDATE
   SET trusted_at = least(clock_timestamp(), c.trusted_at + %(credit)s::interval)
RETURNING clock_timestamp() - trusted_at
"""

# Locks: none.
BEHIND = "SELECT clock_timestamp() - trusted_at FROM pgqueue_clock"


def advance(cursor: Cursor, passed: timedelta) -> timedelta:
    """
    Move the trusted clock on, and return how far it is behind the database's.

    Args:
        cursor: An open cursor; the caller commits.
        passed: Since the caller did this last, by a monotonic clock; zero: it has not.
    """
    credit = min(passed, timedelta(seconds=PASSED_SECONDS_MAX)) * RATE
    cursor.execute(ADVANCE, {"credit": credit})
    late: timedelta = one_row(cursor)[0]
    return late


def behind(cursor: Cursor) -> timedelta:
    """Return how far it is behind the database's; zero where nobody has moved it."""
    cursor.execute(BEHIND)
    row = cursor.fetchone()
    return timedelta(0) if row is None else max(row[0], timedelta(0))
