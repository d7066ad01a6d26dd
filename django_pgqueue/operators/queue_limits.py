"""Queue limits: in words, what holds for a queue, and how much of it is taken."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext as _

from django_pgqueue.conf import QueueLimit
from django_pgqueue.operators.human import count
from django_pgqueue.operators.lanes import rate
from django_pgqueue.queues.stats import QueueStats


def in_force(stats: QueueStats, said: Mapping[str, QueueLimit]) -> QueueLimit:
    """Return what an operator has said of a queue, else what the settings say."""
    limit = said.get(stats.name, QueueLimit())
    spacing, burst = limit.spacing, limit.burst
    if stats.rate_spacing is not None:
        spacing, burst = stats.rate_spacing, stats.rate_burst or 1
    concurrency = stats.concurrency or limit.concurrency
    return QueueLimit(concurrency, spacing, burst)


def taken(stats: QueueStats, said: Mapping[str, QueueLimit]) -> str:
    """Return how much of its limit a queue has taken: "12 of 20 run, 100/min"."""
    limit, parts = in_force(stats, said), []
    if limit.concurrency is not None:
        running = count(stats.running, is_more=stats.is_more("running"))
        told = {"running": running, "most": count(limit.concurrency)}
        parts.append(_("%(running)s of %(most)s run") % told)
    if limit.spacing is not None:
        parts.append(rate(limit.spacing))
    return ", ".join(parts)
