"""Wakeup: waits for other threads and for a socket at once."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from django_pgqueue.postgres.wakeup import PIPE_BYTES, Wakeup
from tests.harness.waiting import wait_for

FOR_EVER = 60.0


@pytest.fixture
def wakeup():
    """A wakeup that is closed after the test."""
    wakeup = Wakeup()
    yield wakeup
    wakeup.close()


@pytest.fixture
def pair():
    """Two connected sockets."""
    with_ends = socket.socketpair()
    yield with_ends
    for end in with_ends:
        end.close()


def test_it_ends_the_wait_of_another_thread(wakeup, in_thread):
    """Within its time, not after it."""
    ended = threading.Event()

    def wait():
        wakeup.wait(FOR_EVER)
        ended.set()

    in_thread(wait)
    wait_for(lambda: wakeup._sleeps, what="the thread waits")
    wakeup.set()

    assert ended.wait(10)
    assert wakeup.is_set()


def test_who_clears_it_waits(wakeup):
    """Until its time is over; with none, it only looks."""
    wakeup.set()
    wakeup.clear()
    assert not wakeup.is_set()

    started = time.monotonic()
    assert not wakeup.wait(0.02)
    assert time.monotonic() - started >= 0.02
    assert not wakeup.wait(0)


def test_a_socket_ends_the_wait_too(wakeup, pair):
    """And is told apart from a wakeup."""
    ours, theirs = pair
    assert not wakeup.wait(0.01, ours.fileno())
    theirs.send(b"x")

    assert wakeup.wait(FOR_EVER, ours.fileno())


def test_more_wakeups_than_a_pipe_holds_block_nobody(wakeup):
    """They are all the same wakeup."""
    wakeup.wait(0)
    wakeup._sleeps = True
    for _ in range(100_000):
        wakeup.set()
    wakeup._sleeps = False
    wakeup.clear()

    # The waits that what was written ends are few, and they do end.
    for _ in range(100_000 // PIPE_BYTES + 1):
        wakeup.wait(0)
    started = time.monotonic()
    wakeup.wait(0.02)
    assert time.monotonic() - started >= 0.02


def test_many_threads_that_wake_and_wait_lose_no_wakeup(wakeup, in_thread):
    """After what a thread did last before set() there is always another wait."""
    done = [0, 0, 0, 0]
    seen = []
    rounds = 2_000

    def wake(number):
        for n in range(rounds):
            done[number] = n + 1
            wakeup.set()

    def listen():
        while not seen or seen[-1] < 4 * rounds:
            wakeup.wait(FOR_EVER)
            wakeup.clear()
            seen.append(sum(done))

    listener = in_thread(listen)
    for number in range(4):
        in_thread(wake, number)
    listener.join(20)

    assert 4 * rounds == seen[-1]
