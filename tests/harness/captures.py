"""Captures of the tests' own models, as a migration makes them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, connections
from django.db.migrations.state import ProjectState

from django_pgqueue.operations import CaptureChanges

MESSAGES = "SELECT name, key, payload, headers FROM pgqueue_message ORDER BY id"


TRIGGERS = """
SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass) FROM pg_trigger
 WHERE tgfoid = 'pgqueue_capture'::regproc AND tgparentid = 0
"""


CAPTURING = """
from django.db import migrations, models
from django_pgqueue.operations import CaptureChanges

class Migration(migrations.Migration):
    operations = [
        migrations.CreateModel("Order", [
            ("id", models.BigAutoField(primary_key=True)),
            ("name", models.CharField(max_length=50)),
        ]),
        CaptureChanges("testapp.Order", topic="orders.all", on=["insert"]),
        CaptureChanges(
            "testapp.Order", topic="orders.all", on=["update"], fields=["id"]),
    ]
"""


class Migrate:
    """Applies operations to the database of the tests."""

    def state(self) -> ProjectState:
        """Return the state of all migrations, and of apps that have none."""
        return ProjectState.from_apps(apps)

    def __call__(
        self, *operations: CaptureChanges, using: str = "default"
    ) -> list[ProjectState]:
        """Apply operations; return the state before the first and after each."""
        states = [self.state()]
        for operation in operations:
            after = states[-1].clone()
            operation.state_forwards("testapp", after)
            with connections[using].schema_editor() as editor:
                operation.database_forwards("testapp", editor, states[-1], after)
            states.append(after)
        return states


migrate = Migrate()


def capture(model: str, *, using: str = "default", **said: Any) -> None:
    """Capture a model from now on."""
    migrate(CaptureChanges(model, **said), using=using)


def published() -> list[tuple[str, str | None, Any, Any]]:
    """Return the messages that this transaction sees: (name, key, payload, headers)."""
    with connection.cursor() as cursor:
        cursor.execute(MESSAGES)
        return [
            (name, key, json.loads(payload), json.loads(headers))
            for name, key, payload, headers in cursor.fetchall()
        ]


@pytest.fixture
def captures(transactional_db: None) -> Iterator[None]:
    """No table is captured after the test, though what it has committed stays."""
    yield
    with connection.cursor() as cursor:
        cursor.execute(TRIGGERS)
        for drop in cursor.fetchall():
            cursor.execute(*drop)


@pytest.fixture
def migrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Iterator[None]:
    """Migrations of testapp, which has none."""
    (tmp_path / "capturing").mkdir()
    (tmp_path / "capturing" / "__init__.py").touch()
    (tmp_path / "capturing" / "0001_initial.py").write_text(CAPTURING)
    monkeypatch.syspath_prepend(tmp_path)
    settings.MIGRATION_MODULES = {"testapp": "capturing"}
    yield
    for name in [name for name in sys.modules if name.startswith("capturing")]:
        del sys.modules[name]
