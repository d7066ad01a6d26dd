"""A role that owns no table: what it is granted is enough, and no more than that."""

from __future__ import annotations

import json
from datetime import timedelta

import psycopg
import pytest

from django_pgqueue.conf import parse
from django_pgqueue.log.days import close_days, drop_day
from django_pgqueue.log.publish import publish
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.day_tables import LOG
from django_pgqueue.postgres.rights import FUNCTIONS, rights
from django_pgqueue.worker.chores import purger
from tests.harness.factories import make_message, make_topic
from tests.places.roles import granted, login

DAY = timedelta(days=1)
ROLE = "shop_worker"


@pytest.fixture
def role(cursor):
    """A role that owns nothing, and is what the file calls a worker."""
    with granted(cursor), login(cursor, ROLE, kind="worker", password="shop"):
        yield ROLE


@pytest.fixture
def as_role(role, new_cursor):
    """A session of a role that was granted what the file says, but for a part."""
    cursors = []

    def as_role(*, without_days=False):
        cursor = new_cursor()
        if without_days:
            days = ", ".join(FUNCTIONS)
            cursor.execute(f"REVOKE EXECUTE ON FUNCTION {days} FROM pgqueue_worker")
        cursor.execute(f"SET SESSION AUTHORIZATION {role}")
        cursors.append(cursor)
        return cursor

    yield as_role
    for cursor in cursors:
        cursor.execute("RESET SESSION AUTHORIZATION")


def put(cursor):
    return publish(cursor, "orders", [Items(json.dumps(["orders", None, 1, {}]), 1)])


# What it can do ----------------------------------------------------------------------


def test_it_publishes_into_a_day_that_nobody_has_made(cursor, as_role, log_days):
    """As a web server does when no worker has led for a week."""
    make_topic()
    drop_day(cursor, log_days(0))

    assert put(as_role()).ids
    assert log_days(0) in LOG.attached(cursor)


def test_it_makes_and_closes_days_as_a_leader(cursor, as_role, log_days):
    """It reads and writes what it made, by the name of the whole log."""
    yesterday = log_days(1)
    mine = as_role()
    with mine.connection.transaction():
        LOG.make(mine, days_ahead=9)

    assert yesterday + 10 * DAY in LOG.attached(cursor)
    assert [yesterday] == close_days(mine)
    mine.execute("SELECT count(*) FROM pgqueue_message")


def test_what_it_cannot_drop_is_kept_and_told(
    role, as_role, log_days, archive_days, caplog
):
    """Nothing is begun that ends with a drop: no group is halted for it."""
    caplog.set_level("WARNING", "django_pgqueue.worker")
    as_role()
    log_days(9)
    make_message(make_topic(), 9)
    link = Link("default", name="test")
    link.connection.execute(f"SET SESSION AUTHORIZATION {role}")
    chores = purger.chores(parse({"RETENTION": {"log": "7d", "archive": "7d"}}))
    try:
        for chore in chores:
            chore(link)
    finally:
        link.drop()

    told = [line for line in caplog.messages if line.startswith("kept")]
    assert 2 == len(told)
    assert all(f"the role {role} does not own" in line for line in told)


# What is told ------------------------------------------------------------------------


def test_a_role_without_grants_is_told_before_the_days_run_out(as_role):
    """With the statement that is missing."""
    mine = as_role(without_days=True)
    found = rights(mine)

    assert (ROLE, False, False) == (found.role, found.owns, found.makes)
    assert "no job can be settled" in found.trouble
    mine.execute("RESET SESSION AUTHORIZATION")
    mine.execute(found.grant)
    mine.execute(f"SET SESSION AUTHORIZATION {ROLE}")
    found = rights(mine)
    assert (False, True) == (found.owns, found.makes)
    assert "cannot drop them" in found.trouble


def test_a_table_that_an_upgrade_has_made_is_told(cursor, as_role):
    """It is the owner's alone until the file is run again, or it is granted by hand."""
    mine = as_role()
    assert () == rights(mine).closed
    cursor.execute("CREATE TABLE pgqueue_later (id integer)")
    try:
        found = rights(mine)
        assert "may not read and write pgqueue_later" in found.trouble
        assert "roles.sql" in found.way_out
        cursor.execute(found.open)
        assert "pgqueue_later" not in rights(mine).trouble
    finally:
        cursor.execute("DROP TABLE pgqueue_later")


# What it cannot do -------------------------------------------------------------------


def test_it_closes_no_day_that_is_not_over(as_role, log_days):
    """Nobody could publish into it."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is not over"):
        as_role().execute("SELECT pgqueue_close_log_day(%s)", [log_days(0)])


def test_nobody_has_the_functions_unless_they_are_granted(as_role, log_days):
    """PUBLIC has none of the three."""
    mine = as_role(without_days=True)
    for function in ("make_log", "make_archive", "close_log"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=function):
            mine.execute(f"SELECT pgqueue_{function}_day(%s)", [log_days(0)])
