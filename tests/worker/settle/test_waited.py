"""Waited: for which jobs this process has heard that somebody waits."""

from __future__ import annotations

import pytest

from django_pgqueue.worker.settle import settler as module
from django_pgqueue.worker.settle.settler import KEPT_SECONDS, Waited


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def waited(clock):
    return Waited(clock)


def test_what_has_ended_is_taken_once(waited):
    """The others stay; with the last one it is false again."""
    waited.note("!wait:1,2")

    assert {2} == waited.take({2, 3})
    assert set() == waited.take({2, 3})
    assert waited
    assert {1} == waited.take({1})
    assert not waited


@pytest.mark.parametrize("later, found", [(1.9, {1}), (2.0, set())])
def test_what_is_not_announced_again_is_forgotten(waited, clock, later, found):
    """Whoever waited has gone; nobody else says so."""
    clock.now += KEPT_SECONDS * 0.9
    waited.note("!wait:1")
    clock.now += KEPT_SECONDS * 0.1
    waited.take({5})  # A settle of others, now and then.
    clock.now += KEPT_SECONDS * (later - 1.0)

    assert found == waited.take({1})
    assert not waited


def test_a_stranger_fills_no_memory(waited, clock, monkeypatch):
    """What is beyond the limit is left out, until what was kept is forgotten."""
    monkeypatch.setattr(module, "IDS_MAX", 3)
    waited.note("!wait:1,2")
    waited.note("!wait:3,4")

    assert {1, 2} == waited.take({1, 2, 3, 4})
