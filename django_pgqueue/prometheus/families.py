"""
Families: numbers by name, unit and label, as prometheus_client writes them.

Names and labels are a contract: dashboards and alerts are written by them, and
docs/reference/metrics.md lists them. Labels are names of the code, of topics, of queues
and of where topics are ingested to, never keys of lanes, arguments or words of errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from django_pgqueue.extras import extra
from django_pgqueue.findings.overview import Overview
from django_pgqueue.queues.stats import QueueStats
from django_pgqueue.queues.task_spans import OTHERS
from django_pgqueue.tasks import registry
from django_pgqueue.worker.serving import is_alive
from django_pgqueue.worker.tally import UNKNOWN, Tally

# Queues that are told apart: those with the most ready and dead jobs. The others are
# one.
QUEUES_MAX = 200

# Buckets of times that end with a bucket of a histogram: each second one, from 4 ms to
# 70 minutes.
PLACES_TOLD = range(2, 23, 2)

STATES = ("ready", "running", "retrying", "scheduled", "parked")

ENDS = (
    *("succeeded", "retried", "postponed", "dead", "cancelled", "expired"),
    "superseded",
)

# At 0, too, so that the first of them is an increase.
ALWAYS_TOLD = frozenset({"succeeded", "retried", "dead"})


class Sample(NamedTuple):
    """One number, with the values of its labels."""

    labels: Sequence[str]
    value: float


def of_worker(tally: Tally, states: Mapping[str, int]) -> Iterator[Any]:
    """Return what the processes of a worker have done since it was started."""
    core = extra("prometheus_client.core")
    by_task = ("queue", "task")
    series = sorted(tally.series.items())
    attempts = core.CounterMetricFamily(
        "pgqueue_worker_attempts",
        "Attempts that ended and were written, by how.",
        labels=(*by_task, "outcome"),
    )
    stale = core.CounterMetricFamily(
        "pgqueue_worker_stale_settles",
        "Attempts whose job was somebody else's by their end: nothing was written.",
        labels=by_task,
    )
    repeats = core.CounterMetricFamily(
        "pgqueue_worker_repeats",
        "Attempts of jobs that may have run before: their last worker died, or its "
        "lease ran out.",
        labels=by_task,
    )
    runs = core.HistogramMetricFamily(
        "pgqueue_worker_run_seconds", "How long attempts ran.", labels=by_task
    )
    waits = core.HistogramMetricFamily(
        "pgqueue_worker_wait_seconds",
        "How long jobs were due before they were claimed.",
        labels=by_task,
    )
    for key, each in series:
        for end in ENDS:
            if each.ends[end] or end in ALWAYS_TOLD:
                attempts.add_metric((*key, end), each.ends[end])
        stale.add_metric(key, each.ends["stale"])
        repeats.add_metric(key, each.repeats)
        runs.add_metric(key, _buckets(each.runs), each.seconds_run)
        waits.add_metric(key, _buckets(each.waits), each.seconds_waited)
    claimed = core.CounterMetricFamily(
        "pgqueue_worker_claimed_jobs", "Jobs that were claimed.", value=tally.claimed
    )
    messages = core.CounterMetricFamily(
        "pgqueue_worker_messages",
        "Messages that handlers of groups were given, by what came of it.",
        labels=("outcome",),
    )
    for kind, count in sorted(tally.messages.items()):
        messages.add_metric((kind,), count)
    processes = core.GaugeMetricFamily(
        "pgqueue_worker_processes", "Places of processes, by state.", labels=("state",)
    )
    for state, count in states.items():
        processes.add_metric((state,), count)
    yield from (attempts, stale, repeats, runs, waits, claimed, messages, processes)


def _buckets(counts: Sequence[int]) -> list[tuple[str, int]]:
    """Return how many took less than so many seconds, as histograms have it."""
    upto = list(accumulate(counts))
    told = [(str(2**place / 1_000), upto[place]) for place in PLACES_TOLD]
    return [*told, ("+Inf", upto[-1])]


def of_fleet(seen: Overview | None) -> Iterator[Any]:
    """Return what the database says; None: it does not."""
    core = extra("prometheus_client.core")
    yield core.GaugeMetricFamily(
        "pgqueue_up", "Whether the database was read: 1, or 0.", value=seen is not None
    )
    if seen is None:
        return

    def gauge(
        name: str, doc: str, labels: Sequence[str], samples: Iterable[Sample]
    ) -> Any:
        family = core.GaugeMetricFamily(name, doc, labels=labels)
        for sample in samples:
            family.add_metric(sample.labels, sample.value)
        return family

    yield core.GaugeMetricFamily(
        "pgqueue_read_timestamp_seconds",
        "When it was read, by the database's clock.",
        value=seen.clock.timestamp(),
    )
    queues = _told_apart(seen.queues)
    yield gauge(
        "pgqueue_jobs",
        "Live jobs by state, counted up to a bound.",
        ("queue", "state"),
        (
            Sample((name, state), sum(getattr(each, state) for each in some))
            for name, some in queues.items()
            for state in STATES
        ),
    )
    yield gauge(
        "pgqueue_dead_letters",
        "Dead letters, counted up to a bound.",
        ("queue",),
        (Sample((name,), sum(q.dead for q in some)) for name, some in queues.items()),
    )
    yield gauge(
        "pgqueue_oldest_ready_seconds",
        "For how long the oldest ready job has been due; 0: none is ready.",
        ("queue",),
        (
            Sample((name,), max(each.oldest_ready_seconds or 0.0 for each in some))
            for name, some in queues.items()
        ),
    )
    yield gauge(
        "pgqueue_paused",
        "Whether claims from the queue are stopped: 1, or 0.",
        ("queue",),
        (
            Sample((name,), any(each.is_paused for each in some))
            for name, some in queues.items()
        ),
    )
    yield gauge(
        "pgqueue_depth_ratio",
        "How full a queue with depth_max is: 1 is full.",
        ("queue",),
        (
            Sample((each.name,), (each.depth or 0) / each.depth_max)
            for name, some in queues.items()
            for each in some
            if each.depth_max and name != OTHERS
        ),
    )
    yield gauge(
        "pgqueue_dead_letters_last_day",
        "What gave up within 24 hours, of the latest 10,000.",
        ("task", "reason"),
        _died(seen),
    )
    yield from _workers(seen, gauge)
    yield from _groups(seen, gauge)
    yield from _ingests(seen, gauge)
    findings = Counter((each.check, each.severity) for each in seen.findings)
    yield gauge(
        "pgqueue_findings",
        "What the doctor finds wrong, of what the first page of the admin looks at.",
        ("check", "severity"),
        (Sample(key, count) for key, count in sorted(findings.items())),
    )


def _told_apart(queues: Sequence[QueueStats]) -> dict[str, list[QueueStats]]:
    """Return queues by name; those beyond QUEUES_MAX as one."""
    if len(queues) <= QUEUES_MAX:
        return {each.name: [each] for each in queues}
    ranked = sorted(queues, key=lambda each: -(each.ready + each.dead))
    told = {each.name: [each] for each in ranked[: QUEUES_MAX - 1]}
    told[OTHERS] = ranked[QUEUES_MAX - 1 :]
    return told


def _died(seen: Overview) -> Iterator[Sample]:
    jobs: Counter[tuple[str, str]] = Counter()
    for each in seen.died:
        # Whoever may insert rows may make up names.
        known = each.task if each.task in registry.tasks else UNKNOWN
        jobs[known, each.reason] += each.jobs
    return (Sample(key, count) for key, count in sorted(jobs.items()))


def _workers(seen: Overview, gauge: Any) -> Iterator[Any]:
    alive = [each for each in seen.workers if is_alive(each.silent_seconds)]
    silent = len(seen.workers) - len(alive)
    yield gauge(
        "pgqueue_workers",
        "Worker processes, by whether they were heard of in the last minute.",
        ("state",),
        (Sample(("alive",), len(alive)), Sample(("silent",), silent)),
    )
    yield gauge(
        "pgqueue_slots",
        "Jobs that the living ones can run at once.",
        ("kind",),
        (
            Sample(("threads",), sum(each.threads for each in alive)),
            Sample(("async",), sum(each.async_slots for each in alive)),
        ),
    )


def _groups(seen: Overview, gauge: Any) -> Iterator[Any]:
    groups = [((row.topic, row.name), behind) for row, behind in seen.behind]
    labels = ("topic", "group")
    yield gauge(
        "pgqueue_group_lag_messages",
        "Messages that a group has not read, counted up to a bound.",
        labels,
        (Sample(key, behind.unread) for key, behind in groups),
    )
    yield gauge(
        "pgqueue_group_lag_seconds",
        "How long ago the oldest of them was published; 0: everything is read.",
        labels,
        (Sample(key, behind.seconds or 0.0) for key, behind in groups),
    )
    yield gauge(
        "pgqueue_group_halted_partitions",
        "Partitions that nobody reads until somebody resumes them.",
        labels,
        (Sample(key, len(behind.halted)) for key, behind in groups),
    )


def _ingests(seen: Overview, gauge: Any) -> Iterator[Any]:
    ingests = [((each.topic, each.target), each) for each in seen.ingests]
    labels = ("topic", "target")
    yield gauge(
        "pgqueue_ingest_lag_messages",
        "Messages of a topic that are not ingested yet, counted up to a bound.",
        labels,
        (Sample(key, each.messages) for key, each in ingests),
    )
    yield gauge(
        "pgqueue_ingest_lag_seconds",
        "How long ago the oldest of them was published; 0: everything is ingested.",
        labels,
        (Sample(key, each.seconds or 0.0) for key, each in ingests),
    )
