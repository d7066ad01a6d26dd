"""Time buckets: percentiles that are read from counts are near the exact ones."""

from __future__ import annotations

import math
import random

import pytest

from django_pgqueue.queues.task_spans import BUCKETS, percentile, place_of


def counts_of(durations):
    counts = [0] * BUCKETS
    for seconds in durations:
        counts[place_of(seconds)] += 1
    return counts


def exact(durations, share):
    ordered = sorted(durations)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


@pytest.mark.parametrize("spread", [0.01, 1.0, 3.0])
@pytest.mark.parametrize("size", [1, 2, 19, 1_000])
def test_a_percentile_is_off_by_less_than_a_factor_of_two(spread, size):
    """However the durations are spread, from milliseconds to hours."""
    draw = random.Random(f"{spread} {size}")
    for median in (0.004, 0.3, 20.0, 600.0):
        durations = [
            min(max(draw.lognormvariate(math.log(median), spread), 0.001), 60_000)
            for _ in range(size)
        ]
        for share in (0.5, 0.95, 0.99, 1.0):
            told = percentile(counts_of(durations), share)
            assert 0.5 < told / exact(durations, share) < 2, (median, share)
