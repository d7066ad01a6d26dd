"""Server: what it is, and whether the hot indexes are there."""

from __future__ import annotations

import uuid

import pytest
from django.db import connection, transaction

from django_pgqueue.postgres.server import (
    HOT_INDEXES,
    facts,
    installation,
    missing_indexes,
)

pytestmark = pytest.mark.django_db


def ask(question):
    with connection.cursor() as cursor:
        return question(cursor)


def test_the_facts_are_those_of_the_server():
    """Version as text and number, connections to be had, and the database."""
    known = ask(facts)

    assert connection.pg_version == known.version_number
    assert known.version.startswith(str(known.version_number // 10_000))
    assert connection.settings_dict["NAME"] == known.database
    assert known.connections_max > 0


def test_connections_that_are_reserved_are_not_promised():
    """Neither those of superusers, nor those of PostgreSQL 16's reserved role."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT current_setting('max_connections')::int
                 - current_setting('superuser_reserved_connections')::int
                 - coalesce(current_setting('reserved_connections', true)::int, 0)
            """
        )
        (available,) = cursor.fetchone()

    assert available == ask(facts).connections_max


def test_an_installation_has_a_uuid_that_stays():
    """The first half of every idempotency key, as text."""
    first = ask(installation)

    assert first == str(uuid.UUID(first)) == ask(installation)


@pytest.mark.parametrize("name", HOT_INDEXES)
def test_an_index_that_was_dropped_is_missing(name):
    """Whichever of them it is."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            if name == "pgqueue_job_pkey":
                cursor.execute(f"ALTER TABLE pgqueue_job DROP CONSTRAINT {name}")
            else:
                cursor.execute(f"DROP INDEX {name}")
        assert [name] == ask(missing_indexes)
        transaction.set_rollback(True)


@pytest.mark.parametrize("column", ["indisvalid", "indisready"])
def test_an_index_that_is_not_valid_is_missing(column):
    """As CREATE INDEX CONCURRENTLY leaves one behind when it is cut off."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE pg_index SET {column} = false"
                f" WHERE indexrelid = 'pgqueue_job_claim'::regclass"
            )
        assert ["pgqueue_job_claim"] == ask(missing_indexes)
        transaction.set_rollback(True)
