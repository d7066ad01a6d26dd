"""What the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections, transaction

from django_pgqueue.log.subscriptions import Declared
from django_pgqueue.postgres.connect import Link
from django_pgqueue.tasks import registry
from django_pgqueue.topics import consume, subscribe
from django_pgqueue.topics import registry as topics
from django_pgqueue.topics.sync import sync_subscriptions


@pytest.fixture(autouse=True)
def _declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is declared but what the test declares, and the tasks of the suite."""
    monkeypatch.setattr(subscribe, "_declared", {})
    monkeypatch.setattr(consume, "_declared", {})
    monkeypatch.setattr(topics, "_declared", {})
    monkeypatch.setattr(registry, "tasks", dict(registry.tasks))


def deploy(*, migrates: bool = True) -> Declared:
    """Write what is declared, as a migration does."""
    with transaction.atomic(), connections["default"].cursor() as cursor:
        return sync_subscriptions(cursor, migrates=migrates)


@pytest.fixture
def link(transactional_db: None) -> Iterator[Link]:
    """A loop's own connection, closed after the test."""
    made = Link("default", name="tests: loop", steady=True)
    yield made
    made.drop()
