"""Looks: when a caller who waits for jobs looks at them again, and when he gives up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat

from django_pgqueue.options.durations import Duration, as_timedelta

# Between two looks of one who is not told of ends: the first are short, since most jobs
# are; a long one costs two queries a second.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.01, 0.5
PAUSE_GROWTH = 1.5

# Of one who is told. The first follow his announcement: a job may end before its worker
# has heard that, or be claimed by a process that starts just now. After that a look
# finds what nobody tells: an end by SQL, by a worker that does not listen, or a
# notification that was lost.
TOLD_PAUSES_SECONDS = (0.003, 0.007, 0.04, 0.2)
TOLD_PAUSE_SECONDS_MAX = 3.0

# A look at many jobs takes no larger part of the time than one in so many.
PAUSES_PER_LOOK = 10


class Looks:
    """
    The times of a wait's looks; the first is at once. Pure.

    Args:
        timeout: A duration; None: without end.
        clock: In seconds.

    Raises:
        ValueError: The timeout is no duration.
    """

    def __init__(
        self, timeout: Duration | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._ends_at = float("inf")
        if timeout is not None:
            left = as_timedelta(timeout, name="timeout").total_seconds()
            self._ends_at = clock() + left
        self._due_at = 0.0
        self._hears = False
        self._pauses = _pauses(hears=False)
        # Whether a look was at or after the end.
        self.is_over = False

    def looked(
        self, *, hears: bool, took: float = 0.0, due_in: float | None = None
    ) -> None:
        """
        Note a look, from which the next one follows.

        Args:
            hears: Whether the end of what is waited for would be told.
            took: Seconds.
            due_in: In how many seconds the next look is due at the latest.
        """
        if hears is not self._hears:
            self._hears, self._pauses = hears, _pauses(hears=hears)
        pause = max(next(self._pauses), took * PAUSES_PER_LOOK)
        if due_in is not None:
            pause = min(pause, due_in)
        now = self._clock()
        self._due_at, self.is_over = now + pause, now >= self._ends_at

    @property
    def seconds(self) -> float:
        """How long to rest until the next look, which may be the last."""
        return max(min(self._due_at, self._ends_at) - self._clock(), 0.0)

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next look."""
        return self._clock() >= min(self._due_at, self._ends_at)


def _pauses(*, hears: bool) -> Iterator[float]:
    if hears:
        return chain(TOLD_PAUSES_SECONDS, repeat(TOLD_PAUSE_SECONDS_MAX))
    return _growing()


def _growing() -> Iterator[float]:
    pause = PAUSE_SECONDS_MIN
    while True:
        yield pause
        pause = min(pause * PAUSE_GROWTH, PAUSE_SECONDS_MAX)
