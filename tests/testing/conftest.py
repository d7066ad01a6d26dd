"""What a test of the testing kit declares is forgotten after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_pgqueue.tasks import inline, registry


@pytest.fixture(autouse=True)
def _forget_declared(monkeypatch):
    """Tasks of one test are unknown to the next."""
    monkeypatch.setattr(registry, "tasks", dict(registry.tasks))


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """No part of the kit goes on after its block, however that ended."""
    before = list(inline.before_claim)
    yield
    # The fixture pgqueue goes on until after this one.
    if "pgqueue" not in (*request.fixturenames, *request.node.keywords):
        assert before == inline.before_claim
