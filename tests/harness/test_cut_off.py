"""A test that is cut off fails alone."""

from __future__ import annotations

import pytest
from django.db import OperationalError, connection, transaction

from tests.harness.cut_off import renewed
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

UNDER_WAY = """
SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)' AND pid = %s
"""


def begin_a_statement(cursor):
    """As who is cut off while he waits for its end; return a function: is it on."""
    connection.ensure_connection()
    pid = connection.connection.info.backend_pid
    connection.connection.pgconn.send_query(b"SELECT pg_sleep(600)")

    def is_under_way():
        return cursor.execute(UNDER_WAY, [pid]).fetchone() == (1,)

    # Before, the server hears no cancel.
    wait_for(is_under_way, what="it has begun")
    return is_under_way


def test_the_next_test_has_a_connection_that_is_free(cursor):
    """And the statement that nobody waits for holds nothing up."""
    is_under_way = begin_a_statement(cursor)
    with pytest.raises(OperationalError, match="already in progress"):
        connection.cursor().execute("SELECT 1")

    assert renewed(connection)

    with connection.cursor() as again:
        again.execute("SELECT 1")
    wait_for(lambda: not is_under_way(), what="it has ended")


def test_a_transaction_that_was_cut_off_is_open_no_more(cursor):
    """The next test is in none."""
    transaction.atomic().__enter__()
    begin_a_statement(cursor)

    assert renewed(connection)

    assert connection.get_autocommit()
    assert not connection.in_atomic_block


def test_a_connection_that_is_free_stays():
    """As does none."""
    connection.ensure_connection()
    raw = connection.connection

    assert not renewed(connection)
    assert raw is connection.connection
    connection.close()
    assert not renewed(connection)
    assert connection.connection is None
