"""What the tests of this folder share."""

from __future__ import annotations

import pytest

from django_pgqueue.schedules import declare
from django_pgqueue.tasks import registry as tasks
from django_pgqueue.topics import consume, subscribe
from django_pgqueue.topics import registry as topics


@pytest.fixture
def nothing(monkeypatch):
    """Return what makes the code of a test the only one that declares anything."""

    def forget():
        monkeypatch.setattr(tasks, "tasks", {})
        for module in (topics, subscribe, consume, declare):
            monkeypatch.setattr(module, "_declared", {})

    forget()
    return forget
