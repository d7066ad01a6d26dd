"""Findings: what is wrong with jobs, workers, groups, sagas and schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django_pgqueue.conf import QueueLimit
from django_pgqueue.log.doctor import Halted
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.lag import Holder, PartitionLag
from django_pgqueue.operators.human import age, shown
from django_pgqueue.operators.lanes import queue_taken as taken
from django_pgqueue.operators.states import oldest
from django_pgqueue.queues.doctor import Died, Seen, StuckSaga
from django_pgqueue.queues.stats import QueueStats
from django_pgqueue.schedules.store import ScheduleRow
from django_pgqueue.schedules.timetables import OVERDUE, state_of
from django_pgqueue.tasks import registry
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.serving import SILENT_SECONDS_MAX, is_alive, is_served

Severity = Literal["ok", "warning", "error"]

# Least to worst.
SEVERITIES: tuple[Severity, ...] = ("ok", "warning", "error")

# A transaction that has published and stays open holds its topics' readers back.
PUBLISHING_SECONDS_MAX = 60.0

# Names in one finding.
NAMES_MAX = 10

# What starts a worker of all queues; of one, with its name.
START = "python manage.py pgqueue_worker"
START_FOR = f"{START} --queues "


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    One thing that was looked at.

    Attributes:
        check: What was looked at, in one word that never changes: for scripts.
        severity: "error": jobs do not run, or soon will not. "warning": somebody
            should look. "ok": as it should be.
        what: The finding, in a sentence.
        value: What was measured, where that is a number or a list.
        limit: What the value is held against.
        way_out: What to do; empty where all is well.
        about: The name of the one queue that it concerns; "": of several, or of none.
    """

    check: str
    severity: Severity
    what: str
    value: object = None
    limit: object = None
    way_out: str = ""
    about: str = ""


def named(names: list[str]) -> str:
    """Return names as one text, NAMES_MAX of them."""
    told = ", ".join(map(shown, names[:NAMES_MAX]))
    left = len(names) - NAMES_MAX
    return f"{told} and {left} more" if left > 0 else told


def ended_by(holder: Holder) -> str:
    """Return what ends a transaction that holds readers back."""
    if holder.is_prepared:
        return "COMMIT PREPARED or ROLLBACK PREPARED: see pg_prepared_xacts."
    return f"SELECT pg_terminate_backend({holder.pid})"


def finding(
    *,
    check: str,
    wrong: object,
    what: str,
    right: str = "",
    way_out: str = "",
    severity: Severity = "warning",
    value: object = None,
    limit: object = None,
    about: str = "",
) -> Finding:
    """
    Return what was found, with its way out; or that all is as it should be.

    Args:
        check: As of a finding.
        wrong: Whether somebody should do something.
        what: The finding.
        right: The same where nothing is wrong, if that is another sentence.
        way_out: Left out where nothing is wrong.
        severity: Of what is wrong.
        value: As of a finding.
        limit: As of a finding.
        about: As of a finding; left out where nothing is wrong.
    """
    return Finding(
        check=check,
        severity=severity if wrong else "ok",
        what=what if wrong or not right else right,
        value=value,
        limit=limit,
        way_out=way_out if wrong else "",
        about=about if wrong else "",
    )


# Jobs and workers ---------------------------------------------------------------------


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


# Consumer groups ----------------------------------------------------------------------


def of_unserved(
    lags: Mapping[GroupRow, Sequence[PartitionLag]], *, limit: int
) -> Iterator[Finding]:
    """
    Has a group that no living worker serves messages to read?

    Args:
        lags: Of such groups, but for those that are paused.
        limit: How far the messages of each partition were counted.
    """
    is_found = False
    for row, each_of in lags.items():
        waiting = [each for each in each_of if each.state == "waiting"]
        if waiting:
            is_found = True
            yield _group_waits(row, waiting, limit)
    if not is_found:
        yield Finding(
            check="groups_unserved",
            severity="ok",
            what="Every group that has messages to read has a living worker, or is "
            "paused.",
        )


def of_halted(found: Sequence[Halted]) -> Finding:
    """Are there positions that nobody reads on from?"""
    told = [
        f"{each.topic}/{each.group}, {each.partitions} partition"
        f"{'' if each.partitions == 1 else 's'}, for {each.halted_for}, since "
        f"{age(each.seconds)}"
        for each in found
    ]
    first = next((each.message for each in found if each.message), "")
    return finding(
        check="groups_halted",
        wrong=found,
        what=f"Groups are halted: {named(told)}. {shown(first)}".strip(),
        right="No group is halted.",
        severity="error",
        value=[f"{each.topic}/{each.group}" for each in found],
        way_out="After an error: fix it, then manage.py pgqueue groups read-on. After "
        "retention: manage.py pgqueue seek, to 'earliest' for what is left.",
    )


def _group_waits(row: GroupRow, waiting: Sequence[PartitionLag], limit: int) -> Finding:
    unread = sum(each.unread for each in waiting)
    more = any(each.unread >= limit for each in waiting)
    return Finding(
        check="groups_unserved",
        severity="error",
        what=f"Group {shown(row)} has {unread:,}{' or more' if more else ''} unread "
        f"message{'' if unread == 1 else 's'}, the oldest for "
        f"{age(oldest(waiting) or 0.0)}, and no living worker serves its queue "
        f"{shown(row.queue)}.",
        value=unread,
        limit=0,
        way_out=f"{START_FOR}{shown(row.queue)}",
    )


# Sagas --------------------------------------------------------------------------------


# A compensation that has failed as often, over about a quarter of an hour, may not
# succeed by itself.
FAILURES_MAX = 10

# Sagas that compensate, looked at.
COMPENSATING_MAX = 10_000


def of_sagas(stuck: Sequence[StuckSaga], *, tells_keys: bool = True) -> Finding:
    """Are there sagas that do not get on with undoing what they have done?"""
    told = named([_saga_told(each, tells_keys=tells_keys) for each in stuck])
    dead = [each for each in stuck if each.state == "dead"]
    return finding(
        check="sagas",
        wrong=stuck,
        severity="error" if dead else "warning",
        what=f"{len(stuck):,} saga{' does' if len(stuck) == 1 else 's do'} not get on "
        f"with undoing: {told}.",
        right="Every saga that compensates gets on with it.",
        value=[each.id for each in stuck],
        limit=FAILURES_MAX,
        way_out="Fix the cause, then manage.py pgqueue flows retry SAGA. Or undo it by "
        "hand, then manage.py pgqueue flows resolve SAGA. The page of the saga in the "
        "admin does either."
        if dead
        else "See why, by manage.py pgqueue show JOB. It is tried until it succeeds; "
        "manage.py pgqueue retry JOB tries at once.",
    )


def of_versions(others: Mapping[str, int]) -> Finding:
    """
    Do sagas run that began with other steps than are declared now?

    None of it is wrong: they keep theirs. Whoever changes a saga wants to know.

    Args:
        others: How many have not ended, by name.
    """
    told = named([f"{name} ({count:,})" for name, count in others.items()])
    return Finding(
        check="saga_versions",
        severity="ok",
        what=f"Sagas under way that began with other steps than are declared now, and "
        f"keep them: {told}."
        if others
        else "Every saga under way began with the steps that are declared now.",
        value=dict(others),
    )


def _saga_told(saga: StuckSaga, *, tells_keys: bool) -> str:
    name = f"{saga.name} {saga.key}" if saga.key and tells_keys else saga.name
    is_dead = saga.state == "dead"
    how = "is dead" if is_dead else f"has failed {saga.failures:,} times"
    undo = f"its {saga.compensation}, job {saga.job}, {how}"
    return f"{name} (saga {saga.id}: {undo})"


# Schedules ----------------------------------------------------------------------------


def of_schedules(rows: Sequence[ScheduleRow], now: datetime) -> Iterator[Finding]:
    """Are ticks issued, and can they be, by the database's clock?"""
    states = {row.name: state_of(row, now) for row in rows}
    late = {
        row.name: (now - row.next_tick).total_seconds()
        for row in rows
        if states[row.name] == "overdue" and row.next_tick is not None
    }
    most = max(late.values(), default=0.0)
    yield finding(
        check="ticks",
        wrong=late,
        what=f"Ticks are overdue, the first for {age(most)}: {named(list(late))}.",
        right="No tick of a schedule is overdue.",
        severity="error",
        value=most,
        limit=OVERDUE.total_seconds(),
        way_out=f"No living worker issues them: {START}",
    )
    yield _faulty_schedules([row for row in rows if states[row.name] == "faulty"])
    yield _schedule_tasks([row for row in rows if row.has_ticks])


def _faulty_schedules(rows: list[ScheduleRow]) -> Finding:
    error = shown(rows[0].error) if rows else ""
    return finding(
        check="schedules",
        wrong=rows,
        what=f"Schedules have no ticks, since they cannot be read, or their tick "
        f"cannot be issued: {named([row.name for row in rows])}. {error}",
        right="Every schedule can be read.",
        severity="error",
        value=[row.name for row in rows],
        way_out="Fix what the error names, or edit or delete them in the admin. What "
        "failed is tried again once a minute.",
    )


def _schedule_tasks(rows: list[ScheduleRow]) -> Finding:
    unknown = [
        row
        for row in rows
        if row.message_name is None and row.task not in registry.tasks
    ]
    told = named([f"{row.name} ({row.task})" for row in unknown])
    return finding(
        check="schedule_tasks",
        wrong=unknown,
        what=f"Schedules have a task that is not declared here: {told}.",
        right="The task of every schedule is declared.",
        value=[row.name for row in unknown],
        way_out="Deploy the code that has it, or pause the schedule; its jobs wait, "
        "and then are dead.",
    )
