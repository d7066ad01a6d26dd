"""
Objectives: what PGQUEUE["QUEUES"] promises of a queue, and how much of it is left.

An hour keeps its wait if 95 % of its jobs started within it; its jobs count as in time
then, and else as late. A job that became a dead letter or expired has failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from django_pgqueue.pipeline.queue_hours import QueueHour

# Of the jobs, so many are in hours that keep their wait.
WAIT_SHARE = 0.99

# The latest hours, whose burn rate is told: at 1, the budget lasts for the period.
RECENT_HOURS = 24


@dataclass(frozen=True, slots=True)
class Budget:
    """
    How one promise was kept.

    Attributes:
        name: "wait" or "success".
        target: Of the jobs, how many are to be good.
        jobs: How many ended in the period.
        bad: How many of them were late, or failed.
        burn_rate: How fast the latest 24 hours with jobs used the budget up: at 1, it
            lasts for just the period.
    """

    name: str
    target: float
    jobs: int
    bad: int
    burn_rate: float

    @property
    def kept(self) -> float:
        """The share of good jobs."""
        return 1 - self.bad / self.jobs if self.jobs else 1.0

    @property
    def allowed(self) -> float:
        """How many jobs may be bad in a period with as many as this one."""
        return _allowed(self.target, self.jobs)

    @property
    def left(self) -> float:
        """The share of the budget that is left; below 0: how much too much was used."""
        return 1 - self.bad / self.allowed if self.allowed else 1.0 - bool(self.bad)

    @property
    def is_kept(self) -> bool:
        """Whether the promise holds for the period."""
        return self.left >= 0


def budgets(
    hours: Sequence[QueueHour], *, wait: timedelta | None, success: float | None
) -> list[Budget]:
    """
    Return the budget of each promise.

    Args:
        hours: Of one queue, the oldest first.
        wait: That 95 % of the jobs of an hour start within; None: none is promised.
        success: The share of jobs that is not to fail; None: none is promised.
    """
    found = []
    if wait is not None:
        limit = wait.total_seconds()
        late = [
            hour.ended if hour.wait_p95 is not None and hour.wait_p95 > limit else 0
            for hour in hours
        ]
        found.append(_budget("wait", WAIT_SHARE, hours, late))
    if success is not None:
        failed = [hour.failed for hour in hours]
        found.append(_budget("success", success, hours, failed))
    return found


def _budget(
    name: str, target: float, hours: Sequence[QueueHour], bad: Sequence[int]
) -> Budget:
    recent_jobs = sum(hour.ended for hour in hours[-RECENT_HOURS:])
    allowed = _allowed(target, recent_jobs)
    burnt = sum(bad[-RECENT_HOURS:])
    return Budget(
        name,
        target,
        sum(hour.ended for hour in hours),
        sum(bad),
        burnt / allowed if allowed else float(bool(burnt)),
    )


def _allowed(target: float, jobs: int) -> float:
    """Return how many of *jobs* may be bad; as floats, 1 - 0.9 is less than 0.1."""
    return float((1 - Decimal(str(target))) * jobs)
