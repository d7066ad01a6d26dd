"""How a claim is divided among bands. Pure; real workers stand elsewhere."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.worker.claim.fair_share import AGED_STARTS, FairShare
from django_pgqueue.worker.queue_plan import read_plan

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Bench:
    """Bands that never run dry, or hold so many jobs, and what was started of each."""

    def __init__(self, *entries, order=None, ageing_seconds=None, free=None):
        self.fair_share = FairShare(read_plan(entries, order), ageing_seconds)
        self.bands: dict = {}
        self.left: dict = {}
        self.free = free or {}
        self.starts: list = []

    def band(self, queue, priority=0, *, jobs=10**9, floor=NOON):
        self.bands[queue, priority] = floor
        self.left[queue, priority] = jobs
        return self

    def claim(self, capacity, now=NOON):
        """Claim once; return how many started of each band."""
        bands = self.fair_share.share(self.bands, capacity, now=now, free=self.free)
        assert sum(band.limit for band in bands) <= capacity
        assert len(bands) == len({band[:2] for band in bands})
        got = {}
        for queue, priority, _, limit in bands:
            key = queue, priority
            assert limit > 0
            count = min(limit, self.left[key])
            self.left[key] -= count
            if count:
                got[key] = count
            if count < limit:
                del self.bands[key]
        self.fair_share.took(bands, got)
        self.starts += [key for key, count in got.items() for _ in range(count)]
        return got

    def claims(self, times, capacity, now=NOON):
        """Return how many started of each queue."""
        total = Counter()
        for _ in range(times):
            for (queue, _), count in self.claim(capacity, now).items():
                total[queue] += count
        return dict(total)


# Shares ------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 500])
def test_queues_of_equal_priority_get_equal_shares(capacity):
    """Whatever the size of a claim: nobody is ahead by more than one start."""
    bench = Bench().band("a").band("b").band("c")

    started = bench.claims(100, capacity)

    assert 100 * capacity == sum(started.values())
    assert max(started.values()) - min(started.values()) <= 1


@pytest.mark.parametrize("capacity", [1, 3, 10, 500])
def test_weights_divide_the_starts(capacity):
    """Three of one for one of another, within one start of each."""
    bench = Bench("a=3", "b=1", "c").band("a").band("b").band("c")

    started = bench.claims(100, capacity)

    for queue, weight in [("a", 3), ("b", 1), ("c", 1)]:
        assert started[queue] == pytest.approx(100 * capacity * weight / 5, abs=1.5)


def test_weights_go_before_priorities_and_priorities_order_one_queue():
    """A flood of high priority does not take the share of another queue."""
    bench = Bench("a=1", "b=1").band("a", 50).band("a", 0).band("b", -5)

    assert {("a", 50): 50, ("b", -5): 50} == bench.claim(100)


def test_without_weights_the_highest_priority_goes_first_over_all_queues():
    """The next one has its turn when that is dry."""
    bench = Bench().band("a", 5, jobs=30).band("b", 0).band("c", 5, jobs=10)

    assert {("a", 5): 30, ("c", 5): 10} == bench.claim(100)
    assert {("b", 0): 100} == bench.claim(100)


def test_in_strict_order_the_queue_that_is_named_earlier_goes_first():
    """Whatever the priorities; these order the jobs of one queue."""
    bench = Bench("a", "b", order="strict")
    bench.band("a", 0, jobs=5).band("b", 100).band("a", 9, jobs=5)

    assert [("a", 9)] == list(bench.claim(10))
    assert [("a", 0)] == list(bench.claim(10))
    assert [("b", 100)] == list(bench.claim(10))


# Caps --------------------------------------------------------------------------------


def test_a_cap_leaves_the_rest_to_others():
    """Threads are not kept free for a queue that may have no more."""
    bench = Bench("a:4", "b").band("a").band("b")
    bench.free = {"a": 4}

    assert {("a", 0): 4, ("b", 0): 16} == bench.claim(20)


# Ageing ------------------------------------------------------------------------------


def aged(capacity, *, since=2 * SECOND):
    """A flood of high priority, and a low band whose oldest job waits since then."""
    bench = Bench(ageing_seconds=1).band("high", 50, floor=NOON)
    return bench.band("low", -50, floor=NOON - since)


@pytest.mark.parametrize("capacity", [1, 2, 7, 100])
def test_one_start_of_twenty_goes_to_the_band_that_waited_longest(capacity):
    """The first of them at once; all others stay with the highest priority."""
    bench = aged(capacity)
    assert 1 == bench.claim(capacity)["low", -50]

    started = bench.claims(400, capacity)

    assert started["low"] == pytest.approx(
        400 * capacity / AGED_STARTS, abs=capacity + 1
    )
