"""Queue limits: in words, what holds for a queue, and how much of it is taken."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from django_pgqueue.bounds import RATE_JOBS_MAX
from django_pgqueue.conf import QueueLimit
from django_pgqueue.operators.human import count
from django_pgqueue.operators.lanes import rate
from django_pgqueue.options.durations import UNIT_SECONDS
from django_pgqueue.queues.stats import QueueStats

# In which people say rates, the first that has a whole number of jobs.
UNITS = ("s", "m", "h", "d")


def in_force(stats: QueueStats, said: Mapping[str, QueueLimit]) -> QueueLimit:
    """Return what an operator has said of a queue, else what the settings say."""
    limit = said.get(stats.name, QueueLimit())
    spacing, burst = limit.spacing, limit.burst
    if stats.rate_spacing is not None:
        spacing, burst = stats.rate_spacing, stats.rate_burst or 1
    concurrency = stats.concurrency or limit.concurrency
    return QueueLimit(concurrency, spacing, burst)


def rate_text(spacing: float) -> str:
    """
    Return a rate as people write it, such as "100/m".

    It is exactly this one; "": there is none, as where SQL has written the row.
    """
    per = Fraction(spacing).limit_denominator(RATE_JOBS_MAX)
    periods = [(unit, UNIT_SECONDS[unit]) for unit in UNITS]
    periods.append((f"{per.numerator}s", per.numerator))
    for period, seconds in periods:
        jobs = round(seconds / spacing) if spacing > 0 else 0
        if 1 <= jobs <= RATE_JOBS_MAX and seconds / jobs == spacing:
            return f"{jobs}/{period}"
    return ""


def taken(stats: QueueStats, said: Mapping[str, QueueLimit]) -> str:
    """Return how much of its limit a queue has taken: "12 of 20 run, 100/min"."""
    limit, parts = in_force(stats, said), []
    if limit.concurrency is not None:
        running = count(stats.running, is_more=stats.is_more("running"))
        parts.append(f"{running} of {count(limit.concurrency)} run")
    if limit.spacing is not None:
        parts.append(rate(limit.spacing))
    return ", ".join(parts)
