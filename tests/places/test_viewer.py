"""pgqueue_viewer, of roles.sql: sees every page, and changes nothing."""

from __future__ import annotations

from contextlib import nullcontext, suppress

import psycopg
import pytest
from django.core.management import call_command

from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_schedule,
)
from tests.places import core

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "queue"])

# Of manage.py pgqueue.
COMMANDS = [
    "stats",
    "jobs",
    "show 9000001",
    "dead",
    "dead --by error",
    "workers",
    "lanes",
    "schedules",
    "topics",
    "groups",
    "doctor",
]

TABLES = """
SELECT c.oid::regclass::text FROM pg_class c
 WHERE c.relnamespace = 'queue'::regnamespace AND c.relkind IN ('r', 'p')
   AND NOT c.relispartition AND c.relname ~ '^pgqueue_' ORDER BY 1
"""


@pytest.fixture
def viewer(log_in):
    """The alias of a session of it, and rows that the owner has made."""
    log_in(None)
    make_job(id=9_000_001, using="queue", args=["seen"])
    make_archived_job(id=9_000_002, using="queue")
    make_dead_letter(id=9_000_003, using="queue")
    make_schedule(using="queue", name="nightly")
    core.enqueue()
    return log_in("viewer")


def test_it_sees_every_page_of_the_admin(viewer, admin_client):
    """Lists, the overview, and pages of rows, whose arguments it may read."""
    core.assert_pages_answer(admin_client)


def test_commands_tell_it_what_they_tell_the_owner(viewer, capsys):
    """Those that change nothing; the doctor speaks of its role, and of no other."""
    for line in COMMANDS:
        # The doctor's status is 1 where it finds something.
        with suppress(SystemExit) if line == "doctor" else nullcontext():
            call_command("pgqueue", *line.split())

        assert "denied" not in (told := capsys.readouterr().out), line
        assert told, line


def test_it_can_change_nothing(place):
    """Of any table that there is; so no function of the queue's does it either."""
    with place.connect("viewer") as login:
        tables = [name for (name,) in login.execute(TABLES)]
        assert 20 <= len(tables)
        for table in tables:
            login.execute(f"SELECT * FROM {table}")
            for refused in (
                f"INSERT INTO {table} DEFAULT VALUES",
                f"DELETE FROM {table}",
                f"TRUNCATE {table}",
                f"SELECT * FROM {table} FOR SHARE",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    login.execute(refused)
