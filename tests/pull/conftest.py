"""Clients of their own processes."""

from __future__ import annotations

import psycopg
import pytest

from django_pgqueue.tasks import options, pull_queues
from tests.queues.conftest import unanalysed

__all__ = ["unanalysed"]


@pytest.fixture
def declared_anew(monkeypatch):
    """What this test declares of pull queues is of it alone."""
    monkeypatch.setattr(pull_queues, "_declared", {})
    before = set(options.pull_queues)
    yield
    options.pull_queues.clear()
    options.pull_queues.update(before)


@pytest.fixture
def conninfo(cursor):
    """What psql and other programs connect to the test's database by."""
    info = cursor.connection.info
    return psycopg.conninfo.make_conninfo(info.dsn, password=info.password or None)
