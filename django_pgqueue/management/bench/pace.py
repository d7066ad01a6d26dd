"""Pace: how fast jobs were finished, told from the archive alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate, pairwise

# When rows were archived, and how many then: in the order of time. The jobs of one
# settle share their moment.
Finished = Sequence[tuple[datetime, int]]


def tenths(finished: Finished) -> tuple[float, float]:
    """
    Return the jobs per second of the first tenth of the jobs, and of the last.

    Of those after the first settle, before which nothing can be timed. Between two
    settles, jobs count as if they had been finished one by one.

    Raises:
        ValueError: There were fewer than two settles.
    """
    if len(finished) < 2:
        raise ValueError(f"{len(finished)} settles are too few to be timed")
    start = finished[0][0]
    seconds = [(moment - start).total_seconds() for moment, _ in finished]
    done = [float(n) for n in accumulate(count for _, count in finished)]
    tenth = (done[-1] - done[0]) / 10
    first = _seconds_at(done[0] + tenth, done, seconds)
    last = seconds[-1] - _seconds_at(done[-1] - tenth, done, seconds)
    return tenth / first, tenth / last


def seconds_until(finished: Finished, started: datetime, count: int) -> float:
    """
    Return the seconds from *started* until *count* jobs were finished.

    Raises:
        ValueError: Fewer were.
    """
    done = 0
    for moment, here in finished:
        done += here
        if done >= count:
            return (moment - started).total_seconds()
    raise ValueError(f"{done} jobs are finished, {count} were expected")


def _seconds_at(number: float, done: list[float], seconds: list[float]) -> float:
    for (before, start), (after, end) in pairwise(zip(done, seconds, strict=True)):
        if number <= after:
            return start + (end - start) * (number - before) / (after - before)
    return seconds[-1]
