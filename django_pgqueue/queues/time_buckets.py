"""
Time buckets: how many durations were about how long, in powers of two from 1 ms.

Counts of several rows add up, which percentiles do not. What is read from them is in
the right bucket, so it is off by less than a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# The first has what took less than 1 ms; the one at place n from 2 ** (n - 1) ms up to
# 2 ** n ms; the last all from there on: 18.6 hours.
BUCKETS = 28


def place_of(seconds: float) -> int:
    """Return the place of the bucket that a duration, of 0 or more, belongs to."""
    place = int(seconds * 1_000).bit_length()
    return place if place < BUCKETS else BUCKETS - 1


def percentile(counts: Sequence[int], share: float) -> float | None:
    """
    Return about how many seconds *share* of the durations took at most.

    It is in the same bucket as the exact one: off by less than a factor of two, or by
    less than 1 ms. Of the last bucket it is the least that it can be.

    Args:
        counts: How many there are in each bucket, of BUCKETS.
        share: From 0 to 1: 0.95 for a p95.

    Returns:
        None: there are no durations.
    """
    total = sum(counts)
    if not total:
        return None
    rank, below = max(share * total, 1), 0
    for place, count in enumerate(counts):
        if below + count >= rank:
            return _within(place, (rank - below) / count)
        below += count
    return _within(BUCKETS - 1, 0.0)


def _within(place: int, share: float) -> float:
    """Return where in a bucket *share* of its durations end, if they are even in it."""
    if place == 0:
        return share / 1_000
    low = 2.0 ** (place - 1) / 1_000
    if place == BUCKETS - 1:
        return low
    # The end is of the next bucket.
    return low * math.pow(2.0, min(share, 0.999))
