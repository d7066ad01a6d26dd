"""Looks: when who waits looks again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from django_pgqueue.tasks.looks import (
    PAUSE_SECONDS_MAX,
    PAUSES_PER_LOOK,
    TOLD_PAUSE_SECONDS_MAX,
    Looks,
)


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def rests(looks, clock, count, *, hears):
    """Look *count* times, and return the rests after the looks."""
    found = []
    for _ in range(count):
        looks.looked(hears=hears)
        found.append(round(looks.seconds, 6))
        clock.now += looks.seconds
    return found


def test_the_first_look_is_at_once(clock):
    """However long the timeout is."""
    looks = Looks("1h", clock)

    assert (True, 0.0, False) == (looks.is_due, looks.seconds, looks.is_over)


def test_who_hears_nothing_looks_ever_less_often(clock):
    """First after 10 ms; in the end twice a second."""
    found = rests(Looks(None, clock), clock, 20, hears=False)

    assert (0.01, 0.015, PAUSE_SECONDS_MAX) == (found[0], found[1], found[-1])
    assert all(one <= other for one, other in pairwise(found))


def test_who_is_told_looks_some_times_and_then_seldom(clock):
    """3, 10, 50 and 250 ms after the announcement, and every few seconds."""
    found = rests(Looks(None, clock), clock, 6, hears=True)

    assert [
        0.003,
        0.007,
        0.04,
        0.2,
        TOLD_PAUSE_SECONDS_MAX,
        TOLD_PAUSE_SECONDS_MAX,
    ] == found


def test_who_is_not_told_any_more_begins_anew(clock):
    """And so does one who is again."""
    looks = Looks(None, clock)
    rests(looks, clock, 9, hears=True)

    assert [0.01, 0.015] == rests(looks, clock, 2, hears=False)
    assert [0.003, 0.007] == rests(looks, clock, 2, hears=True)


def test_the_timeout_is_exact(clock):
    """The last look is at its end, neither before it nor after it."""
    looks = Looks("60ms", clock)
    ended = []
    while not looks.is_over:
        clock.now += looks.seconds
        assert looks.is_due
        looks.looked(hears=True)
        ended.append(round(clock.now - 1_000, 6))

    assert [0.0, 0.003, 0.01, 0.05, 0.06] == ended


def test_with_no_time_there_is_one_look(clock):
    """It is over after that."""
    looks = Looks(0, clock)
    assert not looks.is_over

    looks.looked(hears=False)
    assert looks.is_over


def test_a_look_at_many_is_rare(clock):
    """It takes no more than a tenth of the time."""
    looks = Looks(None, clock)
    looks.looked(hears=True, took=0.5)

    assert PAUSES_PER_LOOK * 0.5 == looks.seconds
    assert not looks.is_due
