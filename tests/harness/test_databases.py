"""Databases of tests are open as long as they are to be, and removed when all left."""

from __future__ import annotations

from contextlib import contextmanager

import psycopg
import pytest
from django.db import connection

from django_pgqueue.postgres.connect import connection_params
from tests.harness.databases import lent, wait_until_left


def connect(name):
    params = {**connection_params("default"), "dbname": name}
    return psycopg.connect(**params, autocommit=True, application_name="guest")


def test_who_is_in_a_database_is_waited_for_and_named(empty_database):
    """Whoever waits is in another one; that of the guest is free when he has left."""
    with connect("postgres") as other, connect(empty_database) as guest:
        guest.execute("SELECT 4711")
        cursor = other.cursor()
        with pytest.raises(AssertionError, match="nobody is in") as raised:
            wait_until_left(cursor, empty_database, 0.0)
        assert "'guest', 'idle', 'SELECT 4711'" in raised.value.__notes__[0]
        guest.close()
        wait_until_left(cursor, empty_database)


def test_what_is_lent_opens_no_database(django_db_setup, django_db_blocker):
    """Who makes it and removes it has one; a test that has it needs its mark."""
    seen = []

    @contextmanager
    def made():
        connection.ensure_connection()
        yield "made"
        connection.close()
        connection.ensure_connection()
        seen.append("removed")
        connection.close()

    with lent(made(), django_db_blocker) as value:
        assert "made" == value
        connection.close()
        with pytest.raises(RuntimeError, match="Database access not allowed"):
            connection.ensure_connection()
    assert ["removed"] == seen
