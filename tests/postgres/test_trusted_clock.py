"""Trusted clock: it goes with the database's, and no jump of that takes it along."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.models import Clock
from django_pgqueue.postgres.trusted_clock import (
    PASSED_SECONDS_MAX,
    RATE,
    TRUSTED_NOW,
    advance,
    behind,
)

HOUR, MINUTE, SECOND = (
    timedelta(**{unit: 1}) for unit in ("hours", "minutes", "seconds")
)
NONE = timedelta(0)


@pytest.fixture
def clock(cursor):
    """A function that says how far the trusted clock is behind the database's."""
    Clock.objects.all().delete()

    def late():
        cursor.execute(f"SELECT statement_timestamp() - {TRUSTED_NOW}")
        return cursor.fetchone()[0]

    yield late
    Clock.objects.all().delete()


def set_back(cursor, by):
    """As after a jump of the database's clock: only the trusted one is as it was."""
    cursor.execute(
        "INSERT INTO pgqueue_clock (trusted_at) VALUES (clock_timestamp() - %(by)s)"
        " ON CONFLICT (id) DO UPDATE SET trusted_at = EXCLUDED.trusted_at",
        {"by": by},
    )


def test_a_clock_that_nobody_has_moved_is_the_databases(cursor, clock):
    """Also after the first step, which has measured nothing."""
    assert NONE == clock()
    assert NONE == behind(cursor)
    assert advance(cursor, NONE) < SECOND
    assert clock() < SECOND


def test_it_goes_with_the_databases_clock(cursor, clock):
    """A minute is made up for by a minute that was measured."""
    set_back(cursor, MINUTE)
    assert advance(cursor, MINUTE) < SECOND
    assert clock() < SECOND


@pytest.mark.parametrize("jump", [timedelta(days=3), timedelta(days=4_000)], ids=str)
def test_a_jump_takes_it_along_by_as_much_as_was_measured(cursor, clock, jump):
    """However far the database's clock is ahead."""
    set_back(cursor, jump)
    for _ in range(2):
        advance(cursor, MINUTE)

    assert NONE <= jump - 2 * RATE * MINUTE - clock() + SECOND < 2 * SECOND


def test_one_step_is_less_than_an_hour(cursor, clock):
    """Whatever was measured: the leader may have stood still since."""
    set_back(cursor, timedelta(days=3))
    advance(cursor, timedelta(days=3))

    assert RATE * PASSED_SECONDS_MAX * SECOND < HOUR
    assert clock() > timedelta(days=3) - HOUR


def test_it_comes_back_with_a_clock_that_was_ahead(cursor, clock):
    """What it was given meanwhile is no credit for the next jump."""
    set_back(cursor, -timedelta(days=3))
    assert NONE == clock()
    assert NONE == behind(cursor)
    advance(cursor, MINUTE)
    assert Clock.objects.get().trusted_at
    cursor.execute("SELECT trusted_at <= clock_timestamp() FROM pgqueue_clock")
    assert (True,) == cursor.fetchone()
