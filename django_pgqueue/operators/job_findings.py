"""Job findings: what the rows of workers and the counts of queues say is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta

from django_pgqueue.conf import QueueLimit
from django_pgqueue.operators.findings import START_FOR, Finding, finding, named
from django_pgqueue.operators.human import age, shown
from django_pgqueue.operators.queue_limits import taken
from django_pgqueue.queues.doctor import Died, Seen
from django_pgqueue.queues.stats import QueueStats
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.serving import SILENT_SECONDS_MAX, is_alive, is_served

# A ready job that waits longer: too few workers, or none.
READY_SECONDS_MAX = 300.0

# What gave up within this is told, counted up to so many.
DEAD_LETTERS_PERIOD = timedelta(hours=24)
DEAD_LETTERS_MAX = 10_000


def of_workers(seen: Sequence[Seen]) -> Iterator[Finding]:
    """Do workers live, and were all that left a row heard of lately?"""
    alive = [worker for worker in seen if is_alive(worker.silent_seconds)]
    yield Finding(
        check="workers",
        severity="ok",
        what=f"{len(alive)} worker processes live"
        + (", one of them leads." if any(worker.leads for worker in alive) else "."),
        value=len(alive),
    )
    silent = [worker for worker in seen if worker not in alive]
    names = [worker.name for worker in silent]
    last = age(silent[0].silent_seconds) if silent else ""
    yield finding(
        check="heartbeats",
        wrong=silent,
        what=f"{len(silent)} workers left a row and are silent: {named(names)}, the "
        f"last of them for {last}.",
        right="No worker is silent.",
        value=names,
        limit=SILENT_SECONDS_MAX,
        way_out="They were killed, or cannot reach the database. Rows of dead ones are "
        "purged by a living worker.",
    )


def of_queues(
    stats: Sequence[QueueStats],
    plans: Collection[QueuePlan],
    limits: Mapping[str, QueueLimit],
) -> Iterator[Finding]:
    """
    Does a living worker serve every queue that has jobs to run, and soon enough?

    Args:
        stats: Of all queues.
        plans: What living workers serve.
        limits: What the settings say of queues, by name.
    """
    unserved = [
        queue
        for queue in stats
        if queue.ready
        and queue.paused_at is None
        and queue.kind == "tasks"
        and not is_served(queue.name, plans)
    ]
    for queue in unserved:
        yield Finding(
            check="unserved",
            severity="error",
            what=f"Queue {shown(queue.name)} has {_ready(queue)} and no living worker.",
            value=queue.ready,
            limit=0,
            way_out=f"{START_FOR}{shown(queue.name)}",
            about=queue.name,
        )
    if not unserved:
        yield Finding(
            check="unserved",
            severity="ok",
            what="Every queue with ready jobs has a living worker, or is paused.",
        )
    yield from _waits(stats, limits)
    yield _suspects(stats)
    paused = [queue for queue in stats if queue.paused_at is not None]
    yield Finding(
        check="paused",
        severity="warning" if any(queue.ready for queue in paused) else "ok",
        what=f"Paused: {named([queue.name for queue in paused])}."
        if paused
        else "No queue is paused.",
        value=[queue.name for queue in paused],
        way_out="Their ready jobs wait: manage.py pgqueue resume QUEUE"
        if any(queue.ready for queue in paused)
        else "",
    )


def _ready(queue: QueueStats) -> str:
    more = " or more" if queue.ready >= queue.count_max else ""
    return f"{queue.ready:,}{more} ready job{'' if queue.ready == 1 else 's'}"


def _suspects(stats: Sequence[QueueStats]) -> Finding:
    waiting = {queue.name: queue.alone for queue in stats if queue.alone}
    count = sum(waiting.values())
    return finding(
        check="suspects",
        wrong=waiting,
        right="No job waits to run alone.",
        what=f"{count:,} job{'' if count == 1 else 's'} of a process that died "
        f"{'waits' if count == 1 else 'wait'} to run alone, in {named([*waiting])}.",
        value=count,
        limit=0,
        way_out="Each worker runs one at a time, beside its other work. Which of them "
        "ends its process becomes a dead letter, worker_lost: manage.py pgqueue dead",
    )


def _waits(
    stats: Sequence[QueueStats], limits: Mapping[str, QueueLimit]
) -> Iterator[Finding]:
    waits = {
        queue.name: queue.oldest_ready_seconds
        for queue in stats
        if queue.oldest_ready_seconds is not None and queue.paused_at is None
    }
    if not waits:
        yield Finding(check="oldest_ready", severity="ok", what="No job is waiting.")
        return
    name = max(waits, key=lambda queue: waits[queue])
    seconds = waits[name]
    (queue,) = (queue for queue in stats if queue.name == name)
    limit = taken(queue, limits)
    is_late = seconds > READY_SECONDS_MAX
    yield finding(
        check="oldest_ready",
        wrong=is_late,
        what=f"The oldest ready job has waited {age(seconds)}, in queue {shown(name)}"
        f"{f', which has a limit: {limit}' if limit else ''}.",
        value=seconds,
        limit=READY_SECONDS_MAX,
        about=name,
        way_out="Start more workers for it, or see what keeps those that are there."
        + (f" Or raise it: manage.py pgqueue limit {shown(name)}" if limit else ""),
    )


def of_dead_letters(died: Sequence[Died]) -> Finding:
    """Did jobs give up within DEAD_LETTERS_PERIOD?"""
    reasons: Counter[str] = Counter()
    for each in died:
        reasons[each.reason] += each.jobs
    count = reasons.total()
    told = ", ".join(f"{number:,} {reason}" for reason, number in reasons.most_common())
    more = " or more" if count >= DEAD_LETTERS_MAX else ""
    return finding(
        check="dead_letters",
        wrong=count,
        what=f"{count:,}{more} jobs gave up in the last 24 h: {told}.",
        right="No job gave up in the last 24 h.",
        value=count,
        limit=0,
        way_out="manage.py pgqueue dead; fix the cause, then pgqueue redrive.",
    )
