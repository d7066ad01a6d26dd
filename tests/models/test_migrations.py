"""The migrations: what they make, and that each step can be taken back."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, connections, models

from django_pgqueue.exceptions import EmbeddedServerError
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.models.columns import JobColumns
from django_pgqueue.queues.settle import KEPT_COLUMNS
from django_pgqueue.testing.embedded import find_binaries
from tests.harness.databases import wait_until_left
from tests.harness.system import require_system
from tests.models.test_sql_files import SQL

SHARED_COLUMNS = {field.column for field in JobColumns._meta.local_fields}

COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid)
  FROM pg_attribute a
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""

# Whatever a migration could make, except what belongs to an extension.
OBJECTS = """
SELECT c.relname::text FROM pg_class c
 WHERE c.relnamespace = %(schema)s::regnamespace
UNION ALL
SELECT p.proname::text FROM pg_proc p
 WHERE p.pronamespace = %(schema)s::regnamespace
"""


def columns_of(model: type[models.Model]) -> dict[str, tuple[str, bool, str | None]]:
    """Return (type, NOT NULL, default) of each real column."""
    with connection.cursor() as cursor:
        cursor.execute(COLUMNS, [model._meta.db_table])
        return {name: tuple(rest) for name, *rest in cursor.fetchall()}


def declared_columns(model: type[models.Model]) -> dict[str, tuple[str, bool]]:
    """Return (type, NOT NULL) of each column that the model declares."""
    return {
        field.column: (
            field.db_type(connection).replace("varchar", "character varying"),
            not field.null,
        )
        for field in model._meta.local_fields
    }


CHECKS = """
SELECT conname::text, pg_get_constraintdef(oid) || ' ' || convalidated
  FROM pg_constraint WHERE conrelid = 'pgqueue_job'::regclass AND contype = 'c'
"""


@pytest.fixture
def scratch_database(django_db_setup: None, django_db_blocker: Any) -> Iterator[Any]:
    """
    An empty database, as the alias "scratch"; its search_path is a schema of ours.

    The schema is not "public", so that whatever is made by an unqualified name goes
    where the installation is.
    """
    name = f"{connection.settings_dict['NAME']}_{uuid.uuid4().hex[:8]}"
    settings = {
        **connection.settings_dict,
        "NAME": name,
        "OPTIONS": {
            **connection.settings_dict["OPTIONS"],
            "options": "-c search_path=installation",
        },
    }
    # Not the mark django_db: that would forbid an alias it has never heard of.
    with django_db_blocker.unblock():
        with connection._nodb_cursor() as cursor:
            cursor.execute(f'CREATE DATABASE "{name}"')
        connections.databases["scratch"] = settings
        try:
            with connections["scratch"].cursor() as cursor:
                cursor.execute("CREATE SCHEMA installation")
            yield connections["scratch"]
        finally:
            connections["scratch"].close()
            del connections["scratch"]
            del connections.databases["scratch"]
            with connection._nodb_cursor() as cursor:
                wait_until_left(cursor, name)
                cursor.execute(f'DROP DATABASE "{name}"')


def objects_in(database: Any, schema: str) -> set[str]:
    with database.cursor() as cursor:
        cursor.execute(OBJECTS, {"schema": schema})
        return {name for (name,) in cursor.fetchall()}


def checks_of_jobs(database: Any) -> dict[str, str]:
    """Return each CHECK of the table by its name, with whether it is valid."""
    with database.cursor() as cursor:
        cursor.execute(CHECKS)
        return dict(cursor.fetchall())


def run_client(program: str, *arguments: Any) -> None:
    """Run a client program of the server's version; the last argument is a database."""
    *options, database = arguments
    major = database.pg_version // 10_000
    folder = os.environ.get("PGQUEUE_TEST_BIN", f"/usr/lib/postgresql/{major}/bin")
    candidates = [f"{folder}/{program}"]
    with suppress(EmbeddedServerError):
        binaries = find_binaries()
        if binaries.major == major:
            candidates.insert(0, str(binaries.folder / program))
    path = require_system(*candidates, reason=f"{program} of PostgreSQL {major}")
    database.ensure_connection()
    info = database.connection.info
    told = psycopg.conninfo.make_conninfo(
        host=info.host, port=info.port, user=info.user, dbname=info.dbname
    )
    done = subprocess.run(
        [path, *options, f"--dbname={told}"],
        env={**os.environ, "PGPASSWORD": info.password},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.django_db(databases=["default", "queue"])
def test_models_and_migrations_agree():
    """makemigrations has nothing to do."""
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.slow
@pytest.mark.smoke
def test_each_step_can_be_taken_back_and_done_again(scratch_database):
    """Down to zero nothing of ours is left, and the way up ends where it did before."""
    made = []
    for _ in range(2):
        call_command("migrate", "pgqueue", database="scratch", verbosity=0)
        made.append(objects_in(scratch_database, "installation"))
        for step in ("0002", "0001", "zero"):
            call_command("migrate", "pgqueue", step, database="scratch", verbosity=0)
        left = objects_in(scratch_database, "installation")
        assert {name for name in left if "pgqueue" in name} == set()

    assert "pgqueue_job" in made[0]
    assert "pgqueue_enqueue" in made[0]
    assert made[0] == made[1]
    assert objects_in(scratch_database, "public") == set()


def test_an_installation_lives_in_the_schema_that_it_was_migrated_into(
    scratch_database,
):
    """Two in one database have a channel each, and functions that find their tables."""
    call_command("migrate", "pgqueue", database="scratch", verbosity=0)
    with scratch_database.cursor() as cursor:
        cursor.execute("CREATE SCHEMA other")
        cursor.execute("SET search_path = other")
        cursor.execute("SELECT installation.pgqueue_channel()")
        assert cursor.fetchone() == ("pgqueue_installation",)
        cursor.execute("SELECT installation.pgqueue_enqueue('x', queue => 'mail')")
        cursor.execute("SELECT queue FROM installation.pgqueue_job")
        assert cursor.fetchall() == [("mail",)]


@pytest.mark.slow
@pytest.mark.smoke
def test_a_dump_keeps_the_rules_and_the_functions(scratch_database, tmp_path):
    """Restored into an empty database, with rows, it refuses what it did before."""
    call_command("migrate", "pgqueue", database="scratch", verbosity=0)
    with scratch_database.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('kept', kwargs => '{\"a\": 1}')")
        cursor.execute("SELECT pgqueue_installation()")
        installation = cursor.fetchone()
    before = checks_of_jobs(scratch_database)
    dump = tmp_path / "dump"
    run_client("pg_dump", "--format=custom", f"--file={dump}", scratch_database)
    with scratch_database.cursor() as cursor:
        cursor.execute("DROP SCHEMA installation CASCADE")
    run_client("pg_restore", "--exit-on-error", str(dump), scratch_database)

    with scratch_database.cursor() as cursor:
        cursor.execute("SELECT task, kwargs->>'a' FROM pgqueue_job")
        assert [("kept", "1")] == cursor.fetchall()
        cursor.execute("SELECT pgqueue_installation()")
        assert installation == cursor.fetchone()
        cursor.execute("SET search_path = ''")
        cursor.execute("SELECT installation.pgqueue_channel()")
        assert ("pgqueue_installation",) == cursor.fetchone()
        with pytest.raises(IntegrityError, match="pgqueue_job_names_are_not_empty"):
            cursor.execute("INSERT INTO installation.pgqueue_job (task) VALUES ('')")
        cursor.execute("SET search_path = installation")
    assert before == checks_of_jobs(scratch_database)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "schema", ["a" * 55, "a" * 56, "a" * 63, 'Odd "name" é', "é" * 27, "é" * 28]
)
def test_the_channel_of_any_schema_has_at_most_63_bytes(schema):
    """However long the schema's name is, and whatever it would need quotes for."""
    quoted = '"{}"'.format(schema.replace('"', '""'))
    short = len(schema.encode()) <= 55
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {quoted}")
        cursor.execute(f"CREATE TABLE {quoted}.pgqueue_job (id bigint)")
        cursor.execute(f"SET LOCAL search_path = {quoted}")
        for file in ("channel.sql", "pins.sql"):
            cursor.execute((SQL / file).read_text("utf-8"))
        cursor.execute("SET LOCAL search_path = ''")
        cursor.execute(f"SELECT {quoted}.pgqueue_channel(), md5(%s)", [schema])
        channel, hashed = cursor.fetchone()

    assert f"pgqueue_{schema if short else hashed}" == channel
    assert len(channel.encode()) <= 63


@pytest.mark.django_db
@pytest.mark.parametrize("model", [Job, ArchivedJob, DeadLetter])
def test_the_real_columns_are_those_of_the_model(model):
    """Also of the archive, which is made by SQL: names, types and NOT NULL."""
    real = {name: facts[:2] for name, facts in columns_of(model).items()}

    assert declared_columns(model) == real


@pytest.mark.django_db
@pytest.mark.parametrize("model", [ArchivedJob, DeadLetter])
def test_a_job_keeps_its_columns_wherever_its_row_is(model):
    """Type, NOT NULL and default of each shared column are alike in all tables."""
    job, other = columns_of(Job), columns_of(model)

    assert {name: job[name] for name in SHARED_COLUMNS} == {
        name: other[name] for name in SHARED_COLUMNS
    }


def test_a_settle_takes_every_shared_column_along():
    """What settle.py moves is what the three tables share; errors go by themselves."""
    assert SHARED_COLUMNS | {"id"} == {*KEPT_COLUMNS.split(", "), "errors"}


# Codenames, and models that can be viewed.
RIGHTS = """
    retry edit send cancel purge pause run_schedule seek run_pipeline add_schedule
    change_schedule delete_schedule view_payload view_mail_body
"""
SHOWN = """
    job archivedjob bulkact deadletter erasure queue worker schedule tick
    pipelinerun topic message logday logstate subscription consumergroup position
    taskhour failure failurehour export dedupwindow lane workflow inboxentry
"""


@pytest.mark.django_db
def test_permissions_are_one_list():
    """What the admin asks for exists from the start, all of it on the job."""
    from django.contrib.auth.models import Permission

    codenames = set(
        Permission.objects.filter(content_type__app_label="pgqueue").values_list(
            "codename", flat=True
        )
    )

    shown = {f"view_{name}" for name in SHOWN.split()}
    assert {*RIGHTS.split(), *shown} == codenames
