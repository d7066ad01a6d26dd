"""The limits of a process, and whose turn it is to leave."""

from __future__ import annotations

import multiprocessing
import signal

import pytest

from django_pgqueue.worker.recycling import Limits, Turn, resident_bytes

FORK = multiprocessing.get_context("fork")
MEBIBYTE = 1_048_576


@pytest.mark.parametrize(
    "limits,expected",
    [
        (Limits(), None),
        (Limits(jobs=11, age_seconds=7.5, memory_bytes=1 << 40), None),
        (Limits(jobs=10), "10 jobs"),
        (Limits(age_seconds=7), "7 s of age"),
    ],
)
def test_a_limit_is_reached_when_it_is_met(limits, expected):
    """Whichever comes first; without limits, never."""
    assert expected == limits.reached(jobs=10, age_seconds=7.2)


def test_memory_is_what_the_process_has_in_ram():
    """Also what it no longer has: a peak is no reason to be replaced."""
    before = resident_bytes()
    block = bytearray(b"x" * (64 * MEBIBYTE))
    there = resident_bytes()
    del block

    assert 60 * MEBIBYTE <= there - before <= 70 * MEBIBYTE
    assert "MiB of memory" in Limits(memory_bytes=before // 2).reached(
        jobs=0, age_seconds=0
    )
    assert there - resident_bytes() >= 60 * MEBIBYTE


def test_one_process_has_its_turn_until_it_dies():
    """However it dies: nobody has to give it back."""
    turn = Turn()
    reader, writer = FORK.Pipe(duplex=False)

    def take_and_wait():
        writer.send(turn.take())
        signal.pause()

    holder = FORK.Process(target=take_and_wait)
    holder.start()
    try:
        assert reader.recv()
        assert not turn.take()
    finally:
        holder.kill()
        holder.join()

    assert turn.take()
    assert turn.take()
