"""Portion: statements that are cancelled for their time take fewer rows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from django_pgqueue.worker import portion as module
from django_pgqueue.worker.portion import HOLD_SECONDS, Portion


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1_000.0)
    time = SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr(module, "time", time)
    return clock


def test_it_is_halved_by_each_cancel_down_to_one(clock):
    """From what was asked for, where that was less."""
    portion = Portion(2_000)
    assert 2_000 == portion.rows

    seen = []
    for asked in (100, 50, 25, 12, 6, 3, 1, 1):
        portion.shrink(asked)
        seen.append(portion.rows)

    assert [50, 25, 12, 6, 3, 1, 1, 1] == seen


def test_it_grows_again_after_a_while(clock):
    """Twice as many at a time, up to what it was."""
    portion = Portion(10)
    portion.shrink(5)
    seen = []
    for _ in range(5):
        seen.append(portion.rows)
        clock.now += HOLD_SECONDS

    assert [2, 4, 8, 10, 10] == seen
