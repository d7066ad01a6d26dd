"""
Real rows, any column overridable.

A timedelta for a time column counts from the database's clock: ``visible_at=
timedelta(hours=1)`` is scheduled for an hour from now, ``-timedelta(hours=1)`` has
been due that long. Rows are written through Django's connection, so they belong to
the test's transaction where it has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections, models, router
from django.db.models import Value

from django_pgqueue.models import (
    ArchivedJob,
    ConsumerGroup,
    DeadLetter,
    Failure,
    FailureHour,
    Job,
    Message,
    PipelineRun,
    Position,
    Schedule,
    Step,
    TaskHour,
    TaskSpan,
    Tick,
    Topic,
    Workflow,
)
from django_pgqueue.models.columns import CLOCK
from django_pgqueue.queues import workers
from django_pgqueue.queues.task_spans import BUCKETS, COUNTS, HISTOGRAMS, SUMS
from django_pgqueue.redaction.fingerprint import fingerprint
from django_pgqueue.redaction.names import REDACT_DEFAULT
from django_pgqueue.redaction.values import redact
from django_pgqueue.schedules.store import COLUMNS as SCHEDULE_COLUMNS

Row = TypeVar("Row", bound=models.Model)

NEXT_ID = "SELECT nextval(pg_get_serial_sequence('pgqueue_job', 'id'))"

NEXT_MESSAGE_ID = "SELECT nextval('pgqueue_message_id_seq')"

LEASE = timedelta(seconds=60)


def make_job(*, using: str | None = None, **columns: Any) -> Job:
    """Insert a live job, due since now unless *columns* say otherwise."""
    return _make(Job, using, {"task": "tests.noop", **columns})


def make_jobs(count: int, *, using: str | None = None, **columns: Any) -> list[int]:
    """Insert *count* equal live jobs and return their ids, oldest first."""
    columns = {"task": "tests.noop", **columns}
    rows = [Job(**_from_now(Job, columns)) for _ in range(count)]
    manager = Job.objects.using(using or router.db_for_write(Job))
    return [row.pk for row in manager.bulk_create(rows, batch_size=1_000)]


def make_leased_job(
    worker: str = "worker", *, using: str | None = None, **columns: Any
) -> Job:
    """Insert a job that *worker* claimed a moment ago and holds for LEASE."""
    return make_job(
        using=using,
        **{
            "leased_by": worker,
            "leased_at": timedelta(0),
            "visible_at": LEASE,
            "attempt": 1,
            "deliveries": 1,
            **columns,
        },
    )


DAY = timedelta(days=1)
MAKE_DAY_OF = """
SELECT pgqueue_make_archive_day(((now() + %s) AT TIME ZONE 'UTC')::date)
"""


def make_archive_day(at: timedelta, *, using: str | None = None) -> None:
    """Let the archive have the day that was or is *at* so long from now."""
    with connections[using or router.db_for_write(ArchivedJob)].cursor() as cursor:
        cursor.execute(MAKE_DAY_OF, [at])


def make_archived_job(*, using: str | None = None, **columns: Any) -> ArchivedJob:
    """Insert a job that succeeded now, unless *columns* say otherwise."""
    defaults = {
        "task": "tests.noop",
        "state": "succeeded",
        "attempt": 1,
        "deliveries": 1,
        "started_at": timedelta(0),
        "finished_at": timedelta(0),
        "worker": "worker",
    }
    columns = {**defaults, **columns}
    finished_at = columns["finished_at"]
    if isinstance(finished_at, timedelta) and -DAY < finished_at < timedelta(0):
        # An hour ago may have been yesterday, for which a new database has no day.
        make_archive_day(finished_at, using=using)
    return _make(ArchivedJob, using, columns)


def make_dead_letter(*, using: str | None = None, **columns: Any) -> DeadLetter:
    """Insert a job that used its attempts up, unless *columns* say otherwise."""
    defaults = {
        "task": "tests.noop",
        "reason": "exhausted",
        "attempt": 5,
        "deliveries": 5,
        "started_at": timedelta(0),
        "finished_at": timedelta(0),
        "worker": "worker",
    }
    return _make(DeadLetter, using, {**defaults, **columns})


def register(name: str, *, hostname: str = "host", queues: Any = ()) -> None:
    """Insert a worker that beat a moment ago."""
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        workers.register(
            cursor,
            name=name,
            hostname=hostname,
            pid=4711,
            queues=queues,
            threads=8,
            version="0.1.0",
        )


def hour_ago(hours: int) -> datetime:
    """Return when the hour began that was *hours* ago; 0 is this one."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    return now - timedelta(hours=hours)


def make_task_hour(
    hours: int = 0, *, using: str | None = None, **columns: Any
) -> TaskHour:
    """Insert the hour that was *hours* ago of a task that did well."""
    defaults = {
        "hour": hour_ago(hours),
        "queue": "default",
        "task": "tests.noop",
        "started": 10,
        "succeeded": 10,
        "wait_p50": 0.1,
        "wait_p95": 0.4,
        "run_p50": 1.5,
        "run_p95": 6.0,
        "worker_seconds": 20.0,
    }
    return _make(TaskHour, using, {**defaults, **columns})


def make_task_span(
    ago: timedelta = timedelta(0),
    seconds: int = 60,
    *,
    using: str | None = None,
    **columns: Any,
) -> TaskSpan:
    """Insert the span of so many seconds that it was so long ago, with one success."""
    at = (datetime.now(UTC) - ago).timestamp()
    defaults = {
        "seconds": seconds,
        "since": datetime.fromtimestamp(at // seconds * seconds, UTC),
        "queue": "default",
        "task": "tests.noop",
        **dict.fromkeys(COUNTS, 0),
        **dict.fromkeys(SUMS, 0.0),
        **dict.fromkeys(HISTOGRAMS, [0] * BUCKETS),
        "succeeded": 1,
    }
    return _make(TaskSpan, using, {**defaults, **columns})


def make_run(*, using: str | None = None, **columns: Any) -> PipelineRun:
    """Insert a run of metrics that succeeded, unless *columns* say otherwise."""
    defaults = {
        "job": "metrics",
        "state": "succeeded",
        "options": {"lookback": "2d", "full": False, "keep": "400d"},
        "asked_by": "ada",
        "hostname": "web-1",
        "pid": 4711,
        "started_at": -timedelta(minutes=2),
        "finished_at": -timedelta(minutes=1),
        "lease_until": -timedelta(minutes=1),
        "rows_in": 12_000,
        "rows_out": 24,
    }
    return _make(PipelineRun, using, {**defaults, **columns})


def make_live_run(*, using: str | None = None, **columns: Any) -> PipelineRun:
    """Insert a run whose process beat a moment ago."""
    live = {
        "state": "running",
        "finished_at": None,
        "lease_until": timedelta(seconds=30),
        "progress": {
            "phase": "reading",
            "tasks_done": 3,
            "tasks": 12,
            "rows_per_second": 1_500.0,
        },
        "ui_url": "http://web-1:4040",
    }
    return make_run(using=using, **{**live, **columns})


def make_failure(
    entry: dict[str, Any] | None = None,
    *,
    hours: dict[int, int] | None = None,
    using: str | None = None,
    **columns: Any,
) -> Failure:
    """
    Insert the failure that an *entry* of a job's errors belongs to.

    Args:
        entry: The error; by default one that was raised.
        hours: How many errors happened so many hours ago.
        using: An alias.
        columns: Others than those of *entry*.
    """
    entry = entry or {"type": "shop.CardDeclined", "message": "declined: code 51"}
    # Secrets never come to the pipeline.
    (entry,) = redact([entry], REDACT_DEFAULT)
    kind = fingerprint(entry)
    hours = {0: 1} if hours is None else hours
    defaults = {
        "fingerprint": kind.digest,
        "error_class": kind.error_class,
        "message": kind.message,
        "place": kind.place,
        "count": sum(hours.values()),
        "jobs": sum(hours.values()),
        "tasks": ["shop.tasks.charge"],
        "first_seen": hour_ago(max(hours, default=0)),
        "last_seen": hour_ago(min(hours, default=0)),
        "sample_job_id": 4711,
        "sample_message": entry.get("message", ""),
        "sample_traceback": entry.get("traceback", ""),
    }
    failure = _make(Failure, using, {**defaults, **columns})
    for ago, count in hours.items():
        _make(
            FailureHour,
            using,
            {
                "fingerprint": failure.fingerprint,
                "hour": hour_ago(ago),
                "count": count,
            },
        )
    return failure


def make_schedule(*, using: str | None = None, **columns: Any) -> Schedule:
    """Insert a user's schedule: every day at three, unless *columns* say otherwise."""
    defaults: dict[str, Any] = {"name": "nightly", "task": "tests.app.tasks.noop"}
    if "every_seconds" not in columns:
        defaults |= {"expression": "0 3 * * *", "tz": "Europe/Berlin"}
    return _make(Schedule, using, {**defaults, **columns})


def make_declared(
    declared: dict[str, Any] | None = None, *, using: str | None = None, **columns: Any
) -> Schedule:
    """Insert a schedule of code; *declared* says what differs in the code by now."""
    columns = {"name": "nightly", "task": "tests.app.tasks.noop", **columns}
    holds = {
        "args": [],
        "kwargs": {},
        "queue": None,
        "priority": None,
        "expression": None,
        "every_seconds": None,
        "tz": "Europe/Berlin",
        "catch_up": "one",
        "overlap": "skip",
        "jitter_seconds": 0,
        "message_name": None,
        "message_key": None,
        "message_payload": None,
        **columns,
    }
    if holds["every_seconds"] is None and holds["expression"] is None:
        holds["expression"] = "0 3 * * *"
    code = {name: holds[name] for name in SCHEDULE_COLUMNS} | (declared or {})
    return _make(Schedule, using, {**holds, "source": "code", "declared": code})


def make_tick(schedule: Schedule, *, using: str | None = None, **columns: Any) -> Tick:
    """Insert a tick that was due a minute ago and issued at once."""
    minute = -timedelta(minutes=1)
    defaults = {"schedule_id": schedule.pk, "due_at": minute, "ticked_at": minute}
    return _make(Tick, using, {**defaults, **columns})


def make_workflow(
    steps: Sequence[dict[str, Any]] = (), *, using: str | None = None, **columns: Any
) -> Workflow:
    """
    Insert a workflow as it is told: no job is stored, and nothing advances.

    Args:
        steps: Columns of each; those in ``after`` are places among them.
        using: The alias.
        columns: Of the workflow; its numbers are those of the steps.
    """
    states = [step.get("state", "waiting") for step in steps]
    numbers = {
        "steps": len(steps),
        "active": states.count("started"),
        **{name: states.count(name) for name in ("succeeded", "dead", "skipped")},
    }
    defaults = {"name": "import", "kind": "canvas", **numbers}
    row = _make(Workflow, using, {**defaults, **columns})
    ids: list[int] = []
    for place, step in enumerate(steps):
        following = [n for n, s in enumerate(steps) if place in s.get("after", ())]
        ids.append(_make_step(row.pk, using, step, following).pk)
    for key, step in zip(ids, steps, strict=True):
        made = Step.objects.using(using).get(pk=key)
        made.after = [ids[n] for n in step.get("after", ())]
        made.next = [ids[n] for n in made.next]
        if "compensates" in step:
            made.compensates = ids[step["compensates"]]
        made.save()
    return row


def _make_step(
    workflow: int, using: str | None, step: dict[str, Any], following: list[int]
) -> Step:
    """Insert a step; what it comes before is given by place, for a moment."""
    defaults = {
        "name": "tests.noop",
        "kind": "step",
        "task": "tests.noop",
        "state": "waiting",
        "job": {"queue": "default", "args": [], "kwargs": {}, "headers": {}},
        "waits": len(step.get("after", ())),
    }
    told = {k: v for k, v in step.items() if k not in ("after", "compensates")}
    links = {"workflow_id": workflow, "after": [], "next": following}
    return _make(Step, using, {**defaults, **told, **links})


def make_stuck_saga(undoes: str = "dead", **columns: Any) -> Workflow:
    """Insert a saga that compensates; *undoes*: the state of what undoes its step."""
    steps = [{"name": "undo", "kind": "compensation", "state": undoes}]
    return make_workflow(steps, kind="saga", state="compensating", **columns)


def make_topic(*, using: str | None = None, **columns: Any) -> Topic:
    """Insert a topic that keeps its messages as the settings say."""
    return _make(Topic, using, {"name": "orders", **columns})


def make_message(
    topic: Topic, days_ago: int = 0, *, using: str | None = None, **columns: Any
) -> Message:
    """
    Insert a message of partition 0 that was published at noon, so many days ago.

    The log has to have that day: the fixture log_days makes it.
    """
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    defaults = {
        "published_at": noon - timedelta(days=days_ago),
        "topic_id": topic.pk,
        "partition": 0,
        "name": topic.name,
        "payload": {"days_ago": days_ago},
    }
    return _make(Message, using, {**defaults, **columns})


def make_group(
    topic: Topic, *, using: str | None = None, **columns: Any
) -> ConsumerGroup:
    """Insert a group that reads a topic; its positions are made apart."""
    defaults = {
        "topic_id": topic.pk,
        "topic": topic.name,
        "name": "stats",
        "task": "tests.count",
    }
    return _make(ConsumerGroup, using, {**defaults, **columns})


def make_position(
    group: ConsumerGroup,
    partition: int = 0,
    *,
    using: str | None = None,
    **columns: Any,
) -> Position:
    """Insert where a group is in one partition: at the beginning."""
    defaults = {"group_id": group.pk, "partition": partition}
    return _make(Position, using, {**defaults, **columns})


def _make(model: type[Row], using: str | None, columns: dict[str, Any]) -> Row:
    using = using or router.db_for_write(model)
    if model in (ArchivedJob, DeadLetter, Message, Step) and "id" not in columns:
        with connections[using].cursor() as cursor:
            cursor.execute(NEXT_MESSAGE_ID if model is Message else NEXT_ID)
            columns = {"id": cursor.fetchone()[0], **columns}
    row = model(**_from_now(model, columns))
    row.save(using=using, force_insert=True)
    # Defaults and triggers of the database have filled in the rest.
    row.refresh_from_db(using=using)
    return row


def _from_now(model: type[models.Model], columns: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _clock(value)
        if isinstance(value, timedelta)
        and isinstance(model._meta.get_field(name), models.DateTimeField)
        else value
        for name, value in columns.items()
    }


def _clock(delta: timedelta) -> Any:
    return models.ExpressionWrapper(
        CLOCK + Value(delta), output_field=models.DateTimeField()
    )
