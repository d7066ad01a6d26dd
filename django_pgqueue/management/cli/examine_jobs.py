"""What the doctor asks of jobs and workers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django_pgqueue.conf import Settings
from django_pgqueue.management.cli.text import shown
from django_pgqueue.operators.findings import START_FOR, Finding, finding
from django_pgqueue.operators.human import age, duration
from django_pgqueue.operators.queue_limits import taken
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import doctor
from django_pgqueue.queues.stats import QueueStats, queue_stats
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.modules import failed_modules, import_problem
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.serving import (
    SILENT_SECONDS_MAX,
    WORKERS_MAX,
    is_alive,
    is_served,
    plan_of,
)

# A ready job that waits longer: too few workers, or none.
READY_SECONDS_MAX = 300.0

# A lease that ran out is taken over by the next poll.
LAPSED_SECONDS_MAX = 60.0

DEAD_LETTERS_PERIOD = timedelta(hours=24)

# Rows counted, tasks looked at.
COUNT_MAX = 10_000
TASK_ROWS_MAX = 10_000

# Names in one finding.
NAMES_MAX = 10


def workers(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Do workers live, and serve every queue that has jobs to run?"""
    seen = doctor.workers_seen(cursor, limit=WORKERS_MAX)
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
    plans = {plan_of(worker) for worker in alive}
    yield from _queues(cursor, settings, plans)


def _queues(
    cursor: Cursor, settings: Settings, plans: set[QueuePlan]
) -> Iterator[Finding]:
    stats = queue_stats(cursor, None)
    unserved = [
        queue
        for queue in stats
        if queue.ready and queue.paused_at is None and not is_served(queue.name, plans)
    ]
    for queue in unserved:
        yield Finding(
            check="unserved",
            severity="error",
            what=f"Queue {shown(queue.name)} has {_ready(queue)} and no living worker.",
            value=queue.ready,
            limit=0,
            way_out=f"{START_FOR}{shown(queue.name)}",
        )
    if not unserved:
        yield Finding(
            check="unserved",
            severity="ok",
            what="Every queue with ready jobs has a living worker, or is paused.",
        )
    yield from _waits(stats, settings)
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


def _suspects(stats: list[QueueStats]) -> Finding:
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


def _waits(stats: list[QueueStats], settings: Settings) -> Iterator[Finding]:
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
    limit = taken(queue, settings.queue_limits)
    is_late = seconds > READY_SECONDS_MAX
    yield finding(
        check="oldest_ready",
        wrong=is_late,
        what=f"The oldest ready job has waited {age(seconds)}, in queue {shown(name)}"
        f"{f', which has a limit: {limit}' if limit else ''}.",
        value=seconds,
        limit=READY_SECONDS_MAX,
        way_out="Start more workers for it, or see what keeps those that are there."
        + (f" Or raise it: manage.py pgqueue limit {shown(name)}" if limit else ""),
    )


def leases(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Are there leases that ran out and that nobody takes over?"""
    count, seconds = doctor.lapsed_leases(cursor, limit=COUNT_MAX)
    is_old = seconds is not None and seconds > LAPSED_SECONDS_MAX
    ago = "" if seconds is None else f", the first {age(seconds)} ago"
    yield Finding(
        check="leases",
        severity="warning" if is_old else "ok",
        what=f"{count:,} leases ran out and were not taken over{ago}."
        if count
        else "No lease ran out without being taken over.",
        value=count,
        limit=LAPSED_SECONDS_MAX,
        way_out="Their workers died, and no other one serves their queues: start one."
        if is_old
        else "",
    )


def modules(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Could every module that declares tasks be imported?"""
    for path, error in failed_modules().items():
        yield Finding(
            check="modules",
            severity="error",
            what=f"{import_problem(path, error)}. No worker starts.",
            value=path,
            way_out="Fix the module; the log of this command has the traceback.",
        )


def tasks(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Do jobs wait whose task nobody declares?"""
    seen = doctor.tasks_in_use(cursor, limit=TASK_ROWS_MAX)
    unknown = [name for name in seen if name not in registry.tasks]
    yield finding(
        check="tasks",
        wrong=unknown,
        what=f"Jobs wait whose task is not declared here: {named(unknown)}.",
        right="Every waiting job's task is declared.",
        value=unknown[:NAMES_MAX],
        way_out="Deploy the code that has them, declare them in a module of "
        f"TASK_MODULES, or add aliases=[…] to the renamed "
        f"task; after {duration(settings.unknown_task_grace_seconds)} they are dead.",
    )


def dead_letters(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Did jobs give up lately?"""
    counts = doctor.new_dead_letters(
        cursor, period=DEAD_LETTERS_PERIOD, limit=COUNT_MAX
    )
    count = sum(counts.values())
    told = ", ".join(f"{number:,} {reason}" for reason, number in counts.items())
    more = " or more" if count >= COUNT_MAX else ""
    yield finding(
        check="dead_letters",
        wrong=count,
        what=f"{count:,}{more} jobs gave up in the last 24 h: {told}.",
        right="No job gave up in the last 24 h.",
        value=count,
        limit=0,
        way_out="manage.py pgqueue dead; fix the cause, then pgqueue redrive.",
    )


def named(names: list[str]) -> str:
    """Return names as one text, NAMES_MAX of them."""
    told = ", ".join(map(shown, names[:NAMES_MAX]))
    left = len(names) - NAMES_MAX
    return f"{told} and {left} more" if left > 0 else told


EXAMINATIONS = (workers, leases, tasks, dead_letters)
