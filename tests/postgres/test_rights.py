"""A role that owns no table: what it is granted is enough, and no more than that."""

from __future__ import annotations

import json
from datetime import timedelta

import psycopg
import pytest

from django_pgqueue.conf import parse
from django_pgqueue.log.days import LOG, close_days, drop_day, make_days
from django_pgqueue.log.publish import publish
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.rights import FUNCTIONS, rights
from django_pgqueue.queues.partitions import drop_partition, make_partitions
from django_pgqueue.queues.settle import Ended, ack
from django_pgqueue.worker.chores import purger
from tests.harness.factories import make_leased_job, make_message, make_topic
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


def test_it_settles_into_a_day_that_nobody_has_made(
    cursor, as_role, archive_days, log_days
):
    """As a worker does, whose settler makes the days that are missing."""
    drop_partition(cursor, log_days(0))
    job = make_leased_job("a")
    mine = as_role()

    with pytest.raises(psycopg.errors.CheckViolation):
        ack(mine, worker="a", ended=[Ended(job.pk, 1)])
    with mine.connection.transaction():
        assert log_days(0) in make_partitions(mine)
    assert {job.pk} == ack(mine, worker="a", ended=[Ended(job.pk, 1)])


def test_it_makes_and_closes_days_as_a_leader(cursor, as_role, log_days):
    """It reads and writes what it made, by the name of the whole log."""
    yesterday = log_days(1)
    mine = as_role()
    with mine.connection.transaction():
        make_days(mine, days_ahead=9)

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


def test_a_member_of_the_owner_lacks_nothing(cursor, as_role):
    """As the way out says."""
    mine = as_role(without_days=True)
    join = rights(mine).join
    cursor.execute(join)
    try:
        found = rights(mine)
        assert ("", "") == (found.trouble, found.way_out)
    finally:
        cursor.execute(join.replace("GRANT", "REVOKE").replace(" TO ", " FROM "))


def test_the_owner_lacks_nothing(cursor):
    """Whoever migrates."""
    assert ("", "", True) == (
        (found := rights(cursor)).trouble,
        found.way_out,
        found.owns,
    )


# What it cannot do -------------------------------------------------------------------


@pytest.mark.parametrize("what", ["log", "archive"])
def test_it_makes_no_days_but_those_of_the_coming_weeks(as_role, what, log_days):
    """A thousand tables would slow everybody down."""
    mine, today = as_role(), log_days(0)
    for day in (today + 36 * DAY, today - 2 * DAY, "infinity"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="35 ahead"):
            mine.execute(f"SELECT pgqueue_make_{what}_day(%s)", [day])


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


def test_a_table_of_its_own_is_not_taken_for_the_log(cursor, as_role, log_days):
    """Neither a temporary one nor one that has the name of a day."""
    mine, day = as_role(), log_days(0) + 10 * DAY
    mine.execute("CREATE TEMPORARY TABLE pgqueue_message (LIKE pgqueue_log_day)")
    mine.execute("SELECT pgqueue_make_log_day(%s)", [day])
    assert day in LOG.attached(cursor)

    name = LOG.name_of(day + DAY)
    cursor.execute(f"CREATE TABLE {name} (LIKE pgqueue_message)")
    cursor.execute(f"ALTER TABLE {name} OWNER TO {ROLE}")
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="another role"):
            mine.execute("SELECT pgqueue_make_log_day(%s)", [day + DAY])
    finally:
        cursor.execute(f"DROP TABLE {name}")
