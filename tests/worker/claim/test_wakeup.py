"""Bell: waits for other threads and for a socket at once."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from django_pgqueue.worker.claim.bell import PIPE_BYTES, Bell
from tests.waiting import wait_for

FOR_EVER = 60.0


@pytest.fixture
def bell():
    """A bell that is closed after the test."""
    bell = Bell()
    yield bell
    bell.close()


@pytest.fixture
def pair():
    """Two connected sockets."""
    with_ends = socket.socketpair()
    yield with_ends
    for end in with_ends:
        end.close()


def test_a_ring_ends_the_wait_of_another_thread(bell, in_thread):
    """Within its time, not after it."""
    ended = threading.Event()

    def wait():
        bell.wait(FOR_EVER)
        ended.set()

    in_thread(wait)
    wait_for(lambda: bell._sleeps, what="the thread waits")
    bell.set()

    assert ended.wait(10)
    assert bell.is_set()


def test_a_ring_before_the_wait_ends_it_at_once(bell):
    """Nobody has to be waiting for it."""
    bell.set()

    started = time.monotonic()
    assert not bell.wait(FOR_EVER)
    assert time.monotonic() - started < FOR_EVER / 2


def test_a_cleared_bell_waits(bell):
    """Until its time is over; with none, it only looks."""
    bell.set()
    bell.clear()
    assert not bell.is_set()

    started = time.monotonic()
    assert not bell.wait(0.02)
    assert time.monotonic() - started >= 0.02
    assert not bell.wait(0)


def test_a_ring_that_was_heard_is_not_heard_again(bell, in_thread):
    """What it wrote is read by the wait that it ended."""
    waits = []

    def wait():
        bell.wait(FOR_EVER)
        bell.clear()
        waits.append(bell.wait(0.01))
        waits.append(bell.wait(0.01))

    thread = in_thread(wait)
    wait_for(lambda: bell._sleeps, what="the thread waits")
    bell.set()
    thread.join(10)

    assert [False, False] == waits


def test_a_socket_ends_the_wait_too(bell, pair):
    """And is told apart from a ring."""
    ours, theirs = pair
    assert not bell.wait(0.01, ours.fileno())
    theirs.send(b"x")

    assert bell.wait(FOR_EVER, ours.fileno())


def test_a_socket_whose_other_end_is_gone_ends_the_wait(bell, pair):
    """Reading from it tells what happened."""
    ours, theirs = pair
    theirs.close()

    assert bell.wait(FOR_EVER, ours.fileno())


def test_more_rings_than_a_pipe_holds_block_nobody(bell):
    """They are all the same ring."""
    bell.wait(0)
    bell._sleeps = True
    for _ in range(100_000):
        bell.set()
    bell._sleeps = False
    bell.clear()

    # The waits that what was written ends are few, and they do end.
    for _ in range(100_000 // PIPE_BYTES + 1):
        bell.wait(0)
    started = time.monotonic()
    bell.wait(0.02)
    assert time.monotonic() - started >= 0.02


def test_rings_and_waits_of_many_threads_lose_no_ring(bell, in_thread):
    """A thread that rings after its last deed is always followed by another wait."""
    done = [0, 0, 0, 0]
    seen = []
    rounds = 2_000

    def ring(number):
        for n in range(rounds):
            done[number] = n + 1
            bell.set()

    def listen():
        while not seen or seen[-1] < 4 * rounds:
            bell.wait(FOR_EVER)
            bell.clear()
            seen.append(sum(done))

    listener = in_thread(listen)
    for number in range(4):
        in_thread(ring, number)
    listener.join(20)

    assert 4 * rounds == seen[-1]


def test_a_ring_after_the_close_is_heard_by_nobody(bell):
    """And harms nobody: the loop is over, others still ring."""
    bell.wait(0)
    bell._sleeps = True
    bell.close()

    bell.set()

    assert bell.is_set()
