"""Leader: runs each chore when it is due, while this worker leads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from django_pgqueue.worker.chores import leader as module
from django_pgqueue.worker.chores.leader import CHORES_INTERVAL_SECONDS, Leader


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def chore(log, name, pause):
    """A chore that notes that it ran, and asks to run again after *pause*."""

    def run(link):
        assert link.connection
        log.append(name)
        return pause

    return run


def test_who_does_not_lead_does_no_chores(link, clock):
    """And holds no connection."""
    log = []
    assert link.connection
    leader = Leader(link, [chore(log, "a", 10)])

    assert CHORES_INTERVAL_SECONDS == leader.tick()
    assert [] == log
    assert not link.is_open


def test_a_chore_that_is_hurried_while_it_runs_runs_again(link, clock):
    """What came meanwhile may be what it did not see."""
    log = []

    def run(link):
        log.append("run")
        if len(log) == 1:
            leader.hurry(run)
        return 10

    leader = Leader(link, [run])
    leader.set_leading(True)

    assert 0 == leader.tick()
    leader.tick()
    assert ["run", "run"] == log


def test_each_chore_runs_when_it_asked_to(link, clock):
    """The wait is for the nearest."""
    log = []
    leader = Leader(link, [chore(log, "often", 10), chore(log, "seldom", 35)])
    leader.set_leading(True)

    pauses = []
    for _ in range(5):
        pauses.append(leader.tick())
        clock.now += 10

    assert ["often", "seldom", "often", "often", "often", "often", "seldom"] == log
    assert [10, 10, 10, 5, 10] == pauses


def test_who_leads_no_more_stops(link, clock):
    """And starts again where it was when it leads again."""
    log = []
    leader = Leader(link, [chore(log, "a", 100)])
    leader.set_leading(True)
    leader.tick()
    leader.set_leading(False)
    clock.now += 200
    leader.tick()
    assert ["a"] == log

    leader.set_leading(True)
    leader.tick()
    assert ["a", "a"] == log


def test_a_chore_that_fails_does_not_keep_the_others_from_running(link, clock):
    """A partition that cannot be dropped is no reason to keep dead letters for ever."""
    log = []

    def fails(link):
        log.append("fails")
        raise ZeroDivisionError

    leader = Leader(link, [fails, chore(log, "works", 100)])
    leader.set_leading(True)

    leader._tick_safely()
    leader._tick_safely()
    assert ["fails", "works"] == log

    clock.now += CHORES_INTERVAL_SECONDS
    leader._tick_safely()
    assert ["fails", "works", "fails"] == log
