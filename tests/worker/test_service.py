"""Service: a loop that goes on whatever its tick raises."""

from __future__ import annotations

import logging
import threading

import psycopg
import pytest

from django_pgqueue.postgres.connect import Link
from django_pgqueue.worker import service as module
from django_pgqueue.worker.service import (
    BACKOFF_SECONDS_MAX,
    BACKOFF_SECONDS_MIN,
    LOG_INTERVAL_SECONDS,
    Portion,
    Service,
    backoff_seconds,
    is_broken,
)


class Scripted(Service):
    """Each tick raises or returns what the script says next."""

    name = "scripted"

    def __init__(self, link, *script):
        super().__init__(link)
        self.script = list(script)

    def tick(self):
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step


class Clock:
    """time, of which monotonic() is what a test says."""

    def __init__(self, now=1_000.0):
        self.now = now

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def closed_link():
    """A link that nobody has opened."""
    return Link("default", name="tests")


def test_the_pause_after_failures_doubles_with_jitter_up_to_five_seconds(monkeypatch):
    """So that a fleet does not come back together."""
    monkeypatch.setattr(module.random, "uniform", lambda low, high: (low, high))

    bounds = [backoff_seconds(failures) for failures in (1, 2, 3, 5, 6, 7, 10_000)]

    assert {BACKOFF_SECONDS_MIN} == {low for low, _ in bounds}
    assert [0.2, 0.4, 0.8, 3.2, 5, 5, 5] == pytest.approx([high for _, high in bounds])
    assert 5.0 == BACKOFF_SECONDS_MAX


def test_an_outage_is_a_line_in_ten_seconds(link, clock, caplog):
    """And one when it is over, with the number of failures."""
    caplog.set_level(logging.INFO, "django_pgqueue.worker")
    away = psycopg.OperationalError("connection refused\nIs the server running?")
    service = Scripted(link, *[away] * 101, 0.0, away)

    for _ in range(101):
        service._tick_safely()
        clock.now += LOG_INTERVAL_SECONDS / 50

    lines = [
        f"failed     loop=scripted failures={n} error=OperationalError: "
        "connection refused"
        for n in (1, 51, 101)
    ]
    assert lines == caplog.messages
    assert [None] * 3 == [record.exc_info for record in caplog.records]

    service._tick_safely()
    assert "recovered  loop=scripted failures=101" == caplog.messages[-1]
    service._tick_safely()
    assert "failures=1 " in caplog.messages[-1]


def server_error(sqlstate):
    return psycopg.errors.lookup(sqlstate)("x")


@pytest.mark.parametrize(
    "error, expected",
    [
        (psycopg.OperationalError("no answer"), True),
        (psycopg.InterfaceError("closed"), True),
        (server_error("25006"), True),
        (server_error("57P01"), True),
        (server_error("57P03"), True),
        (ZeroDivisionError(), True),
        (server_error("23505"), False),
        (server_error("40001"), False),
        (server_error("57014"), False),
    ],
    ids=lambda value: getattr(value, "sqlstate", None) or repr(value),
)
def test_a_connection_is_replaced_when_it_is_of_no_use(link, error, expected):
    """A refused statement is no reason; a server that became read-only is."""
    assert link.connection

    assert expected is is_broken(link, error)


def test_a_failed_tick_drops_a_broken_connection_and_keeps_a_good_one(link):
    """The next tick opens another."""
    first = link.connection
    service = Scripted(link, server_error("23505"), server_error("57P01"))

    service._tick_safely()
    assert first is link.connection
    service._tick_safely()
    assert not link.is_open


def test_a_loop_ticks_until_it_is_stopped(link):
    """A wake ends its wait, stop() its life; then its connection is closed."""

    class Counting(Service):
        name = "counting"
        ticks = 0
        ticked = threading.Event()

        def tick(self):
            assert self.link.connection
            self.ticks += 1
            self.ticked.set()
            return 3_600.0

    service = Counting(link)
    assert service.join(0)
    service.start()
    assert service.ticked.wait(10)
    service.ticked.clear()
    service.wake.set()
    assert service.ticked.wait(10)
    assert not service.stopping

    service.stop()

    assert service.stopping
    assert service.join(10)
    assert 2 == service.ticks
    assert not link.is_open


def test_a_loop_that_hangs_is_told_apart(closed_link):
    """join() gives up after the time it was given."""
    release = threading.Event()

    class Hanging(Service):
        def tick(self):
            assert release.wait(10)
            return 0.0

    service = Hanging(closed_link)
    service.start()
    service.stop()
    assert not service.join(0.01)
    release.set()
    assert service.join(10)


def test_a_portion_is_halved_by_each_cancel_down_to_one(clock):
    """From what was asked for, where that was less."""
    portion = Portion(2_000)
    assert 2_000 == portion.rows

    seen = []
    for asked in (100, 50, 25, 12, 6, 3, 1, 1):
        portion.shrink(asked)
        seen.append(portion.rows)

    assert [50, 25, 12, 6, 3, 1, 1, 1] == seen
