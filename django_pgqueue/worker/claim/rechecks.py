"""
Rechecks: when to look at everything again, after a sign that more may have come. Pure.

Producers leave out a wake that follows another one closely, and workers take jobs from
one another. So every wake that is taken and every job that is found is a *sign*: rounds
follow it, of which one begins once nothing that it stood for can still be on its way.
No later sign puts off a round that is due; else a stream of them would put it off for
ever.
"""

from __future__ import annotations

import math

# A round begins so long after a sign, if none comes after it: soon, for what came with
# it; when no producer is quiet any more (WAKE_INTERVAL_SECONDS_MAX); and for a crash
# between a commit and its NOTIFY, or a row that was locked and rolled back.
RECHECK_SECONDS = (0.015, 0.075, 0.325)


class Rechecks:
    """The rounds that are to come, by monotonic time."""

    def __init__(self) -> None:
        self._at: list[float] = []
        # Until this round, nobody can say which queues the sign was about.
        self._any_until = -math.inf

    @property
    def at(self) -> float:
        """When the next round should begin."""
        return self._at[0] if self._at else math.inf

    @property
    def is_over(self) -> bool:
        """Whether none is to come."""
        return not self._at

    def expect(
        self, now: float, *, not_before: float = 0.0, is_any: bool = False
    ) -> None:
        """
        Note a sign.

        Args:
            now: The time of it.
            not_before: Of the first round, where rounds are dear or would find nothing.
            is_any: Whether it may be about queues that nobody has named.
        """
        first = max(now + RECHECK_SECONDS[0], not_before)
        if self._at:
            first = min(first, self._at[0])
        later = [now + seconds for seconds in RECHECK_SECONDS[1:]]
        self._at = [first, *(at for at in later if at > first)]
        if is_any:
            self._any_until = self._at[-1]

    def once(self, at: float) -> None:
        """Let one round begin at *at*, if none is to come."""
        if not self._at:
            self._at = [at]

    def begin(self, now: float) -> bool:
        """
        Note that a round begins.

        Returns:
            Whether it should ask which queues there are.
        """
        while self._at and self._at[0] <= now:
            del self._at[0]
        if self._any_until == -math.inf:
            return False
        if now >= self._any_until:
            self._any_until = -math.inf
        return True
