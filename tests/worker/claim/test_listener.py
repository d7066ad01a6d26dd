"""Listener: hears NOTIFY, sets flags, and proves that it hears."""

from __future__ import annotations

import threading

import psycopg
import pytest

from django_pgqueue.postgres.wake import prove, wake
from django_pgqueue.postgres.wakeup import Wakeup
from django_pgqueue.worker.claim import listener as module
from django_pgqueue.worker.claim.listener import (
    LOOK_SECONDS,
    NAMES_MAX,
    PROOF_INTERVAL_SECONDS,
    PROOF_PATIENCE_SECONDS,
    Listener,
    Wakes,
)
from django_pgqueue.worker.queue_plan import QueuePlan, read_plan
from tests.harness.waiting import wait_for


class Clock:
    """time, of which monotonic() is what a test says."""

    def __init__(self):
        self.now = 1_000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def wakeup():
    wakeup = Wakeup()
    yield wakeup
    wakeup.close()


@pytest.fixture
def wakes(wakeup):
    return Wakes(QueuePlan(), wakeup)


@pytest.fixture
def listener(link, wakes, clock):
    return Listener(link, wakes)


@pytest.fixture
def hear(listener, wakes, wakeup, cursor):
    """A function that returns the queues of all that was notified until now."""

    def hear():
        names = wakes.take() or set()
        wake(cursor, ["marker"])
        while "marker" not in names:
            listener.wait(10, wakeup)
            wakeup.clear()
            taken = wakes.take()
            names |= {"*"} if taken is None else taken
        return names - {"marker"}

    return hear


def test_a_notification_sets_the_flag_of_its_queue(listener, wakes, cursor, hear):
    """The first tick listens, and flags everything: what came before was not heard."""
    assert LOOK_SECONDS == listener.tick()
    assert wakes.take() is None
    wake(cursor, ["mail", "reports", "mail"])

    assert {"mail", "reports"} == hear()


def test_who_waits_is_woken_by_a_notification(
    listener, wakes, wakeup, cursor, in_thread
):
    """Long before the time is over."""
    listener.tick()
    wakes.take()
    wakeup.clear()
    waiter = in_thread(listener.wait, 60, wakeup)
    wait_for(lambda: wakeup._sleeps, what="the thread waits")
    wake(cursor, ["mail"])

    waiter.join(10)
    assert {"mail"} == wakes.take()


def test_after_a_reconnect_everything_is_flagged(
    listener, wakes, link, wakeup, cursor, hear
):
    """What was notified meanwhile went by."""
    listener.tick()
    wakes.take()
    pid = link.connection.info.backend_pid
    cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    wakeup.clear()
    # The server's last words first, then the end.
    wait_for(
        lambda: listener.wait(10, wakeup) or listener.wake.is_set(), what="it is lost"
    )
    listener.wait(0, wakeup)

    with pytest.raises(psycopg.OperationalError):
        listener.tick()
    listener.tick()
    assert wakes.take() is None
    wake(cursor, ["mail"])
    assert {"mail"} == hear()


def test_a_connection_is_not_closed_under_who_waits(
    listener, wakes, link, wakeup, in_thread
):
    """The next connection could get its descriptor; so he is woken first."""
    listener.tick()
    connection = link.connection
    wakeup.clear()
    closed = []

    def wait():
        listener.wait(60, wakeup)
        closed.append(connection.closed)

    waiter = in_thread(wait)
    wait_for(lambda: wakeup._sleeps, what="the thread waits")
    real, link.drop = link.drop, lambda: (waiter.join(10), real())
    listener._end()

    assert [False] == closed
    assert connection.closed


# The proof ---------------------------------------------------------------------------


def test_a_token_is_due_every_fifteen_seconds(listener, clock, cursor, hear):
    """Once it listens, and one at a time."""
    assert listener.next_token() is None
    listener.tick()
    token = listener.next_token()
    assert token is not None
    assert listener.next_token() is None
    prove(cursor, channel=listener.own_channel, token=token)
    hear()
    assert listener.next_token() is None

    clock.now += PROOF_INTERVAL_SECONDS

    assert listener.next_token() not in (None, token)
    assert 15.0 == PROOF_INTERVAL_SECONDS


def test_a_listener_that_does_not_hear_its_token_reconnects(
    listener, wakes, clock, link, cursor, caplog, hear
):
    """A pooler swallowed its LISTEN, or the connection is dead and looks open."""
    listener.tick()
    wakes.take()
    deaf = link.connection
    deaf.execute("UNLISTEN *")
    prove(cursor, channel=listener.own_channel, token=listener.next_token())
    listener.tick()
    clock.now += PROOF_PATIENCE_SECONDS
    listener.tick()
    assert deaf is link.connection

    clock.now += 0.1
    listener.tick()

    assert deaf is not link.connection
    assert "deaf       loop=listener" in caplog.text
    assert wakes.take() is None
    wake(cursor, ["mail"])
    assert {"mail"} == hear()


# Flags -------------------------------------------------------------------------------


@pytest.fixture
def signal():
    return threading.Event()


def taken(wakes):
    """Wakes whose first flag, for everything, is already taken."""
    assert wakes.take() is None
    return wakes


def test_wakes_of_other_queues_are_nothing_to_a_worker(signal):
    """It does not even wake up."""
    wakes = taken(Wakes(read_plan(("mail",)), signal))

    wakes.flag("reports")
    assert not signal.is_set()
    assert not wakes.pending

    wakes.flag("mail")
    assert signal.is_set()
    assert {"mail"} == wakes.take()


def test_a_hint_that_is_about_no_queue_is_told_to_whom_it_is_for(signal):
    """Whatever queues are served; and no claimer is woken."""
    heard = []

    wakes = taken(Wakes(read_plan(("mail",)), signal))
    wakes.hints = dict.fromkeys(("!cancel", "!lanes", "!lane:"), heard.append)

    for hint in ("!cancel", "!lanes", "!lanes9", "!lane:a", "!unknown"):
        wakes.flag(hint)

    assert ["", "", "9", "a"] == heard
    assert not wakes.pending
    assert not signal.is_set()


def test_a_stranger_with_made_up_names_fills_bounded_memory(signal):
    """Beyond it, the flag is for any queue."""
    wakes = taken(Wakes(QueuePlan(), signal))
    for number in range(100_000):
        wakes.flag(f"q{number}")

    assert NAMES_MAX == len(wakes._names)
    assert wakes.take() is None
    assert set() == wakes.take()


def test_after_a_reconnect_all_are_told(signal):
    """A cancel, a changed schedule or a message may have been notified meanwhile."""
    heard = []
    wakes = Wakes(QueuePlan(), signal)
    wakes.hints = {
        hint: lambda rest, hint=hint: heard.append(hint)
        for hint in ("!cancel", "!schedules", "!lane:", "!alert", "!topic ")
    }

    wakes.flag_any()

    assert ["!cancel", "!schedules", "!alert", "!topic "] == heard
