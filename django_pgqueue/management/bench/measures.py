"""Measures: all there are, by name, in the order in which they run."""

from __future__ import annotations

import fnmatch

from django_pgqueue.management.bench.asynchronous import ASYNC
from django_pgqueue.management.bench.backlog import BACKLOG
from django_pgqueue.management.bench.capture import CAPTURED
from django_pgqueue.management.bench.contend import CONTEND
from django_pgqueue.management.bench.drain import (
    DRAIN,
    DRAIN_IMMEDIATE_16,
    DRAIN_IMMEDIATE_64,
    DRAIN_METRICS,
    DRAIN_NO_ARCHIVE,
    DRAIN_TRACE,
    DRAIN_TWO,
)
from django_pgqueue.management.bench.enqueue import BULK, ENQUEUE
from django_pgqueue.management.bench.fairness import FAIR_DRAIN, FAIR_LATENCY
from django_pgqueue.management.bench.horizon import HORIZON
from django_pgqueue.management.bench.idle import IDLE
from django_pgqueue.management.bench.lanes import (
    LANES_LATENCY,
    LANES_LIMIT,
    LANES_ORDER,
    LANES_PARKED,
    LANES_SNAPSHOT,
)
from django_pgqueue.management.bench.latency import LATENCY
from django_pgqueue.management.bench.latency_mixed import LATENCY_MIXED
from django_pgqueue.management.bench.latency_trickle import LATENCY_TRICKLE
from django_pgqueue.management.bench.measure import Measure
from django_pgqueue.management.bench.pull import PULL
from django_pgqueue.management.bench.replay import REPLAY
from django_pgqueue.management.bench.results import RESULTS, STREAM
from django_pgqueue.management.bench.sagas import WORKFLOWS_SAGAS
from django_pgqueue.management.bench.start import START
from django_pgqueue.management.bench.topics import TOPICS
from django_pgqueue.management.bench.workflows import (
    WORKFLOWS_CHAIN,
    WORKFLOWS_CHORD,
    WORKFLOWS_NONE,
)

MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        ENQUEUE,
        BULK,
        CONTEND,
        DRAIN,
        DRAIN_IMMEDIATE_16,
        DRAIN_IMMEDIATE_64,
        DRAIN_NO_ARCHIVE,
        DRAIN_TWO,
        DRAIN_METRICS,
        DRAIN_TRACE,
        ASYNC,
        LATENCY,
        LATENCY_MIXED,
        LATENCY_TRICKLE,
        RESULTS,
        STREAM,
        HORIZON,
        BACKLOG,
        IDLE,
        START,
        TOPICS,
        CAPTURED,
        REPLAY,
        LANES_PARKED,
        LANES_ORDER,
        LANES_LIMIT,
        LANES_LATENCY,
        LANES_SNAPSHOT,
        FAIR_DRAIN,
        FAIR_LATENCY,
        PULL,
        WORKFLOWS_CHAIN,
        WORKFLOWS_CHORD,
        WORKFLOWS_NONE,
        WORKFLOWS_SAGAS,
    )
}
ALL = "all"


def chosen(pattern: str) -> list[str]:
    """
    Return the names that *pattern* means: a name, "all", or one with * and ?.

    What is no name means those that begin with it, as "lanes" does. One whose package
    is not installed must be named.

    Raises:
        ValueError: None.
    """
    if pattern in MEASURES:
        return [pattern]
    some = [name for name, measure in MEASURES.items() if measure.can_run]
    if pattern == ALL:
        return some
    names = fnmatch.filter(some, pattern) or fnmatch.filter(some, f"{pattern}_*")
    if not names:
        raise ValueError(
            f"{pattern!r} is no measure; there are {', '.join(MEASURES)} and {ALL}"
        )
    return names
