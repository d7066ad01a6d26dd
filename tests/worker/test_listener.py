"""Listener: hears NOTIFY, sets flags, and proves that it hears."""

from __future__ import annotations

import threading

import pytest

from django_pgqueue.postgres.wake import channel, prove, wake
from django_pgqueue.worker import listener as module
from django_pgqueue.worker.listener import (
    PROOF_INTERVAL_SECONDS,
    PROOF_PATIENCE_SECONDS,
    Listener,
)
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.wakes import Wakes


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
    # What is under way has arrived by then; the real wait is a second.
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
    return clock


@pytest.fixture
def wakes():
    return Wakes(QueuePlan(), threading.Event())


@pytest.fixture
def listener(link, wakes, clock):
    return Listener(link, wakes)


def test_a_notification_sets_the_flag_of_its_queue(listener, wakes, cursor):
    """The first tick listens, and flags everything: what came before was not heard."""
    listener.tick()
    assert wakes.take() is None
    wake(cursor, ["mail", "reports", "mail"])

    assert 0.0 == listener.tick()

    assert {"mail", "reports"} == wakes.take()


def test_a_quiet_tick_flags_nothing(listener, wakes):
    """An idle worker asks nobody."""
    listener.tick()
    wakes.take()
    listener.tick()

    assert not wakes.pending


def test_other_channels_are_not_heard(listener, wakes, cursor):
    """Another schema's queue has a channel of its own."""
    listener.tick()
    wakes.take()
    prove(cursor, channel="pgqueue_elsewhere", token="mail")
    listener.tick()

    assert not wakes.pending


def test_after_a_reconnect_everything_is_flagged(listener, wakes, link, cursor):
    """What was notified meanwhile went by."""
    listener.tick()
    wakes.take()
    pid = link.connection.info.backend_pid
    cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    assert listener._tick_safely() > 0

    listener.tick()
    assert wakes.take() is None
    wake(cursor, ["mail"])
    listener.tick()
    assert {"mail"} == wakes.take()


# The proof ---------------------------------------------------------------------------


def test_a_token_is_due_every_fifteen_seconds(listener, clock, cursor):
    """Once it listens, and one at a time."""
    assert listener.next_token() is None
    listener.tick()
    token = listener.next_token()
    assert token is not None
    assert listener.next_token() is None
    prove(cursor, channel=listener.own_channel, token=token)
    listener.tick()
    assert listener.next_token() is None

    clock.now += PROOF_INTERVAL_SECONDS

    assert listener.next_token() not in (None, token)
    assert 15.0 == PROOF_INTERVAL_SECONDS


def test_a_listener_that_hears_its_token_keeps_its_connection(
    listener, wakes, clock, cursor, link
):
    """And a token is no wake."""
    listener.tick()
    wakes.take()
    connection = link.connection
    prove(cursor, channel=listener.own_channel, token=listener.next_token())
    listener.tick()
    clock.now += PROOF_PATIENCE_SECONDS + 1
    listener.tick()

    assert connection is link.connection
    assert not wakes.pending


def test_a_listener_that_does_not_hear_its_token_reconnects(
    listener, wakes, clock, link, cursor, caplog
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
    listener.tick()
    assert {"mail"} == wakes.take()


def test_a_strangers_token_proves_nothing(listener, clock, cursor, link):
    """Nor does one of an earlier connection."""
    listener.tick()
    deaf = link.connection
    assert listener.next_token()
    prove(cursor, channel=listener.own_channel, token="not the one")
    listener.tick()
    clock.now += PROOF_PATIENCE_SECONDS + 0.1
    listener.tick()

    assert deaf is not link.connection


def test_a_token_that_could_not_be_sent_is_not_waited_for(listener, clock, link):
    """The fault was the sender's."""
    listener.tick()
    connection = link.connection
    assert listener.next_token()
    listener.forget_token()
    clock.now += PROOF_PATIENCE_SECONDS + 1
    listener.tick()

    assert connection is link.connection


def test_two_listeners_have_channels_of_their_own(link, wakes):
    """One's token must not prove the other."""
    assert Listener(link, wakes).own_channel != Listener(link, wakes).own_channel


def test_a_stream_of_notifications_does_not_keep_it_from_stopping(
    listener, wakes, cursor
):
    """It looks up between two of them."""
    listener.tick()
    wake(cursor, [f"q{number}" for number in range(100)])
    listener.stop()
    wakes.take()
    listener.tick()

    assert 1 == len(wakes.take())
    assert channel(cursor).startswith("pgqueue_")
