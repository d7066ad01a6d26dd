"""Issue: a tick becomes a job, or a message, in one transaction."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue import signals, telemetry
from django_pgqueue.bounds import ATTEMPTS_DEFAULT, QUEUE_DEFAULT
from django_pgqueue.conf import Settings, get_settings
from django_pgqueue.exceptions import ScheduleError, UnknownTask
from django_pgqueue.log.names import topic_of
from django_pgqueue.log.publish import HINT, publish
from django_pgqueue.options.lanes import Lane
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.wake import wake
from django_pgqueue.queues.enqueue import Placement, enqueue
from django_pgqueue.queues.fair import hint_of
from django_pgqueue.queues.unique import store_unique
from django_pgqueue.schedules import store, ticks
from django_pgqueue.schedules.store import ScheduleRow
from django_pgqueue.schedules.timetables import timetable_of
from django_pgqueue.tasks import depth, payload, registry
from django_pgqueue.tasks.context import TICK
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.lanes import lane_in, lane_of
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.tasks.store_unique import dedup_of
from django_pgqueue.timetable.catch_up import CatchUp, find_due, jitter

logger = logging.getLogger("django_pgqueue.schedules")


class Issued(NamedTuple):
    """What has become of one tick."""

    schedule: str
    due_at: datetime
    outcome: str  # Of TickOutcome.
    job_id: int | None
    task: str
    queue: str
    missed: int
    # Of a schedule that publishes; the queues that got jobs, and the topic's readers.
    message_id: int | None = None
    message_name: str | None = None
    jobs: int = 0
    wakes: tuple[str, ...] = ()
    # What is told of its queue, if that was full.
    full: Mapping[str, Any] | None = None


def reckon(cursor: Cursor, row: ScheduleRow) -> bool:
    """
    Write when a schedule is due next, or why that cannot be said.

    Args:
        cursor: In autocommit.
        row: As it was just read.

    Returns:
        Whether its next tick is another one now.
    """
    error: str | None = None
    next_tick = None
    try:
        CatchUp.parse(row.catch_up)
        next_tick = timetable_of(row).next_after(_from(row))
        if next_tick is None:
            error = "No tick comes any more."
    except ScheduleError as problem:
        error = str(problem)
    if next_tick == row.next_tick and error == row.error and (next_tick or error):
        return False
    if error is not None:
        logger.error("schedule   name=%r has no ticks: %s", row.name, error)
    return ticks.reckon(cursor, row, next_tick, error)


def issue(cursor: Cursor, row: ScheduleRow, now: datetime) -> list[Issued]:
    """
    Issue what is due of one schedule; the caller has a transaction open.

    The schedule moves on, its ticks are inserted and their jobs enqueued: all of it
    commits, or nothing. Empty: nothing is due, or another scheduler has it.

    Args:
        cursor: Inside a transaction.
        row: As it was just read.
        now: By the database's clock, in UTC.

    Raises:
        ScheduleError: The row cannot be read; see reckon().
    """
    table = timetable_of(row)
    due = find_due(table, _from(row), now, CatchUp.parse(row.catch_up))
    if due is None:
        return []
    next_tick = table.next_after(due.latest)
    if not ticks.advance(cursor, row, latest=due.latest, next_tick=next_tick):
        return []
    if not due.issued:
        ticks.insert(cursor, row.id, due.latest, outcome="missed", missed=due.missed)
        return [_issued(row, due.latest, "missed", None, due.missed)]
    issued: list[Issued] = []
    missed = due.missed
    for tick in due.issued:
        found = _issue_tick(cursor, row, tick, missed)
        if found is not None:
            issued.append(found)
        missed = 0
    return issued


def run_now(cursor: Cursor, row: ScheduleRow, *, by: str = "") -> Issued:
    """
    Enqueue a schedule's job now, by hand, paused or not, and whatever runs already.

    Or publish its message. Its ticks go on as they were.

    Args:
        cursor: Inside a transaction.
        row: Of the schedule.
        by: Who asked.
    """
    now = store.database_now(cursor)
    tick = ticks.insert(cursor, row.id, now, by=by or "?")
    assert tick is not None  # Nobody else has this microsecond.
    if row.message_name is not None:
        return _publish(cursor, row, row.message_name, tick, now, 0)
    return _enqueue(cursor, row, tick, now, 0, timedelta())


def wake_for(cursor: Cursor, issued: Iterable[Issued]) -> None:
    """
    Wake workers for what came of ticks that are committed; cursor in autocommit.

    For the jobs of a tick, those of a message's subscriptions, and its readers.
    """
    wake(cursor, sorted({name for each in issued for name in each.wakes}))


def tell(issued: Issued, *, late_seconds: float) -> None:
    """Tell who listens of a tick that is committed, and of its job, if there is one."""
    sender = registry.tasks.get(issued.task)
    if issued.message_name is not None:
        telemetry.send(
            signals.messages_published,
            None,
            topic=topic_of(issued.message_name),
            ids=[issued.message_id],
            jobs=issued.jobs,
        )
    if issued.full is not None:
        telemetry.send(signals.queue_full, sender, on_full="signal", **issued.full)
    if issued.job_id is not None:
        telemetry.send(
            signals.job_enqueued,
            sender,
            job_id=issued.job_id,
            task=issued.task,
            queue=issued.queue,
        )
    telemetry.ticked(sender, issued, late_seconds=late_seconds)


def _issue_tick(
    cursor: Cursor, row: ScheduleRow, due_at: datetime, missed: int
) -> Issued | None:
    # Never of a schedule that publishes: none of its messages' jobs is its own.
    if row.overlap == "skip" and ticks.is_busy(cursor, row.id):
        ticks.insert(cursor, row.id, due_at, outcome="overlap", missed=missed)
        return _issued(row, due_at, "overlap", None, missed)
    tick = ticks.insert(cursor, row.id, due_at, missed=missed)
    if tick is None:
        return None
    if row.message_name is not None:
        return _publish(cursor, row, row.message_name, tick, due_at, missed)
    delay = jitter(row.name, due_at, timedelta(seconds=row.jitter_seconds))
    return _enqueue(cursor, row, tick, due_at, missed, delay)


def _enqueue(
    cursor: Cursor,
    row: ScheduleRow,
    tick: int,
    due_at: datetime,
    missed: int,
    delay: timedelta,
) -> Issued:
    placement = _placement(row, due_at, settings := get_settings())
    if delay:
        placement = replace(placement, run_at=due_at + delay)
    # A tick comes once, so a full queue takes its job, too.
    full = depth.full(cursor, placement.queue, settings)
    job_id = _stored(cursor, row, placement)
    outcome = "duplicate" if job_id is None else "enqueued"
    ticks.note_job(cursor, tick, job_id, outcome)
    wakes = () if job_id is None else (placement.queue, *_hints(row))
    return Issued(
        *(row.name, due_at, outcome, job_id, row.task, placement.queue, missed),
        wakes=wakes,
        full=full,
    )


def _publish(
    cursor: Cursor,
    row: ScheduleRow,
    name: str,
    tick: int,
    due_at: datetime,
    missed: int,
) -> Issued:
    """Publish the message of a tick, which its headers and those of its jobs name."""
    headers = {TICK: due_at.isoformat()}
    item = json.dumps([name, row.message_key, row.message_payload, headers])
    topic = topic_of(name)
    stored = publish(cursor, topic, [Items(item, 1)], is_admitted=True)
    ticks.note_message(cursor, tick, stored.ids[0])
    readers = [HINT + topic] if stored.has_groups else []
    return Issued(
        *(row.name, due_at, "published", None, row.task, "", missed),
        message_id=stored.ids[0],
        message_name=name,
        jobs=stored.jobs,
        wakes=(*sorted(stored.queues), *readers),
    )


def _stored(cursor: Cursor, row: ScheduleRow, placement: Placement) -> int | None:
    """Store the job of a tick; None: its task says that another one stands for it."""
    args, kwargs = json.dumps(row.args), json.dumps(row.kwargs)
    task = _task(row)
    rule = None if task is None else task.options.rule
    lane = None if task is None else _lane(task, placement.queue)
    if task is not None and lane is not None:
        placement = replace(
            placement,
            lane=lane_of(task, lane, *payload.decode(args, kwargs)),
            **lane.columns,
        )
    if task is None or rule is None:
        return enqueue(cursor, placement, args=args, kwargs=kwargs)
    if rule.delay is not None and placement.run_at is None:
        placement = replace(placement, delay=rule.delay)
    dedup = dedup_of(task, rule, None, [payload.decode(args, kwargs)])
    stored = store_unique(
        cursor, placement, dedup, args=args, kwargs=kwargs, locks=True
    )
    if stored.conflict is not None:
        return None
    ticks.own_job(cursor, row.id, stored.id)
    return stored.id


def _hints(row: ScheduleRow) -> Sequence[str]:
    """Return what is notified besides of a job that waits for others."""
    task = _task(row)
    if task is None:
        return ()
    queue = row.queue or task.options.queue or QUEUE_DEFAULT
    lane = _lane(task, queue)
    return () if lane is None else (hint_of(queue, lane.policy),)


def _lane(task: DeclaredTask, queue: str) -> Lane | None:
    return lane_in(task, task.options.lane, queue, get_settings())


def _task(row: ScheduleRow) -> DeclaredTask | None:
    """Return its task; None: a worker that knows it, or says so, takes the job."""
    try:
        return find_task(row.task)
    except UnknownTask:
        return None


def _placement(row: ScheduleRow, due_at: datetime, settings: Settings) -> Placement:
    """Return where its job goes; of a task that is not declared here, as is usual."""
    headers: dict[str, Any] = {TICK: due_at.isoformat()}
    queue, priority, attempts = row.queue or QUEUE_DEFAULT, row.priority, None
    task = _task(row)
    if task is not None:
        queue = row.queue or task.options.queue or QUEUE_DEFAULT
        resolved = task.resolve(queue, settings)
        attempts = resolved.retry.max_attempts
        if priority is None:
            priority = resolved.priority
        if task.options.tags:
            headers["tags"] = list(task.options.tags)
    return Placement(
        queue=queue,
        task=row.task,
        headers=json.dumps(headers),
        priority=priority or 0,
        max_attempts=attempts or ATTEMPTS_DEFAULT,
        schedule_id=row.id,
    )


def _issued(
    row: ScheduleRow, due_at: datetime, outcome: str, job: int | None, missed: int
) -> Issued:
    return Issued(row.name, due_at, outcome, job, row.task, row.queue or "", missed)


def _from(row: ScheduleRow) -> datetime:
    """
    Return the moment after which its ticks are due, in UTC.

    A session shows moments in the time zone of its role. Two that have one zone are
    compared by the clock on the wall, which is wrong in the hour that comes twice.
    """
    since = row.ticks_from.astimezone(UTC)
    return since if row.last_tick is None else max(row.last_tick.astimezone(UTC), since)
