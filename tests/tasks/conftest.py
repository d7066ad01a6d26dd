"""What the tests of this folder share."""

from __future__ import annotations

import pytest

from django_pgqueue.tasks import registry


@pytest.fixture
def declared(monkeypatch):
    """The declared tasks; what a test declares is forgotten after it."""
    tasks = dict(registry.tasks)
    monkeypatch.setattr(registry, "tasks", tasks)
    return tasks
