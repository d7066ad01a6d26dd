"""The files of sql/ are what the migrations have left in the database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

import django_pgqueue

SQL = Path(django_pgqueue.__file__).parent / "sql"
PINS = SQL / "pins.sql"

# What files can make: for each its name, how to drop it, and what it is, with who may
# use it. Of tables, CHECKs alone, and not those of models.
OURS = """
WITH home AS (SELECT relnamespace AS oid FROM pg_class
               WHERE oid = 'pgqueue_job'::regclass)
SELECT p.proname::text, format('DROP FUNCTION %%s CASCADE', p.oid::regprocedure),
       pg_get_functiondef(p.oid)
       || coalesce(nullif(p.proacl, acldefault('f', p.proowner))::text, '')
  FROM pg_proc p JOIN home ON p.pronamespace = home.oid
 WHERE p.proname ~ '^pgqueue_'
UNION ALL
SELECT 'trigger ' || t.tgname,
       format('DROP TRIGGER IF EXISTS %%I ON %%s', t.tgname, c.oid::regclass),
       pg_get_triggerdef(t.oid)
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
  JOIN home ON c.relnamespace = home.oid
 WHERE c.relname ~ '^pgqueue_' AND NOT t.tgisinternal
UNION ALL
SELECT 'view ' || c.relname, format('DROP VIEW IF EXISTS %%s CASCADE', c.oid::regclass),
       pg_get_viewdef(c.oid)
  FROM pg_class c JOIN home ON c.relnamespace = home.oid
 WHERE c.relname ~ '^pgqueue_' AND c.relkind = 'v'
UNION ALL
SELECT 'check ' || k.conname,
       format('ALTER TABLE %%s DROP CONSTRAINT IF EXISTS %%I',
              k.conrelid::regclass, k.conname),
       pg_get_constraintdef(k.oid)
  FROM pg_constraint k JOIN home ON k.connamespace = home.oid
 WHERE k.conname ~ '^pgqueue_' AND k.contype = 'c' AND k.coninhcount = 0
   AND k.conname <> ALL (%(declared)s)
"""
# CHECKs that stand in the CREATE TABLE of what Django cannot declare.
OF_TABLES = (
    *("pgqueue_archived_job_state", "pgqueue_message_headers"),
    "pgqueue_spark_write_state",
)
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def ours(cursor: Any) -> list[tuple[str, str, str]]:
    """Return what there is; the installation's uuid is another each time."""
    models = apps.get_app_config("pgqueue").get_models()
    rules = [rule.name for model in models for rule in model._meta.constraints]
    cursor.execute(OURS, {"declared": [*rules, *OF_TABLES]})
    return sorted((name, drop, UUID.sub("", text)) for name, drop, text in cursor)


def statements(name: str) -> str:
    """Return a file of sql/ without the comment above each statement."""
    text = (SQL / name).read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))


@pytest.mark.django_db
def test_the_database_has_what_the_files_say_and_nothing_else():
    """A changed file wants a migration with a frozen copy; a migration its file."""
    with connection.cursor() as cursor:
        migrated = ours(cursor)
        for _, drop, _ in migrated:
            cursor.execute(drop)
        dropped = ours(cursor)
        cursor.execute("SET LOCAL check_function_bodies = off")  # For any order.
        for path in [*sorted(set(SQL.glob("*.sql")) - {PINS}), PINS]:
            cursor.execute(path.read_text("utf-8"))
        made = ours(cursor)

    assert [] == dropped
    assert migrated == made
