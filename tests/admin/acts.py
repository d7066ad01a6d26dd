"""What people can do on the pages, with the permissions that each act needs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.admin.models import LogEntry
from django.db import connection
from django.utils import timezone

from django_pgqueue import chain
from django_pgqueue.models import (
    ArchivedJob,
    BulkAct,
    ConsumerGroup,
    DeadLetter,
    Failure,
    InboxEntry,
    Job,
    Lane,
    Message,
    PipelineRun,
    Position,
    Queue,
    Schedule,
    Subscription,
    Tick,
    Topic,
    Worker,
    Workflow,
)
from django_pgqueue.testing import drain
from tests.admin.stored_mails import a_mail
from tests.app.workflow_tasks import fails_at, give
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_declared,
    make_job,
    make_jobs,
    make_live_run,
    make_run,
    make_schedule,
    make_workflow,
)
from tests.log.rows import (
    make_group,
    make_position,
    make_subscription,
    make_topic,
)

NOW = timedelta(0)
HOUR = timedelta(hours=1)

PAGES = {
    model._meta.model_name: model
    for model in (
        *(Job, ArchivedJob, DeadLetter, Queue, Lane, Worker, PipelineRun, Failure),
        *(Schedule, Topic, Message, InboxEntry, Subscription),
        *(ConsumerGroup, BulkAct, Workflow),
    )
}

ALL = {
    *(f"view_{noun}" for noun in PAGES),
    *("view_payload", "view_mail_body", "retry", "edit", "cancel", "purge", "pause"),
    *("send", "run_schedule", "seek", "run_pipeline"),
    # Charts without pages of rows, and what has no page.
    *("view_taskhour", "view_failurehour", "view_export", "view_erasure"),
    *("view_dedupwindow", "view_tick", "view_position", "view_logday"),
    "view_logstate",
    *("add_schedule", "change_schedule", "delete_schedule"),
}

CONFIRMED = {
    "confirmed": "1",
    "reason": "no longer needed",
    "queue": "elsewhere",
    "is_new": "on",
    "jobs": "7",
    "payload": "7",
    "partitions": "8",
}

# What is done with one row: its noun, its name, and the permission beside "view".
ACTS = [
    ("job", "retry", "retry"),
    ("job", "cancel", "cancel"),
    ("deadletter", "redrive", "retry"),
    ("deadletter", "redrive-to", "retry"),
    ("deadletter", "set-aside", "cancel"),
    ("deadletter", "purge", "purge"),
    ("archivedjob", "resend", "retry"),
    ("workflow", "retry-dead", "retry"),
    ("workflow", "restart", "retry"),
    ("workflow", "cancel", "cancel"),
    ("workflow", "resolve", "cancel"),
    ("queue", "pause", "pause"),
    ("queue", "resume", "pause"),
    ("queue", "limit", "pause"),
    ("queue", "send", "send"),
    *(("lane", name, "pause") for name in ("pause", "resume", "capacity", "release")),
    ("lane", "weight", "pause"),
    ("pipelinerun", "run-again", "run_pipeline"),
    ("pipelinerun", "stop", "run_pipeline"),
    ("schedule", "run-now", "run_schedule"),
    ("schedule", "pause", "pause"),
    ("schedule", "resume", "pause"),
    ("schedule", "reset", "change_schedule"),
    ("schedule", "remove", "delete_schedule"),
    ("subscription", "disable", "pause"),
    ("subscription", "enable", "pause"),
    ("subscription", "remove", "purge"),
    ("consumergroup", "pause", "pause"),
    ("consumergroup", "resume", "pause"),
    ("consumergroup", "read-on", "pause"),
    ("topic", "repartition", "seek"),
    ("topic", "publish", "send"),
]
# May be done again, so that each of two requests does it.
REPEATED = {"run-again", "run-now", "release", "resend", "restart", "send", "publish"}
# Done at once; all others show a form on GET and ask first.
AT_ONCE = {"retry", "redrive", "resume", "enable"}


def to_view(noun: str) -> set[str]:
    """Return the permissions that open a page."""
    # Arguments make the names of lanes.
    return {f"view_{noun}", *(["view_payload"] if noun == "lane" else [])}


def make(noun: str, name: str) -> Any:
    """Return the key of a row with which the act *name* does something."""
    since = NOW if name in ("resume", "enable") else None
    if noun == "lane":
        kind = {"lane_policy": "fair"} if name == "weight" else {"lane_capacity": 1}
        make_jobs(5, lane="a", **kind)
        if since is not None:
            Lane.objects.create(name="a", paused_at=timezone.now())
        return "a"
    if noun == "queue":
        kind = "pull" if name == "send" else "tasks"
        paused_at = None if since is None else timezone.now()
        return Queue.objects.create(name="mail", kind=kind, paused_at=paused_at).pk
    if noun == "workflow":
        return make_acted_on_workflow(name)
    if noun == "consumergroup":
        group = make_group(paused_at=since)
        make_position(group, 1, halted_at=NOW, halted_for="error")
        return group.pk
    if noun == "schedule" and name == "reset":
        changed = {"overridden_at": NOW, "overridden_by": "ada"}
        return make_declared({"tz": "UTC"}, **changed).pk
    makers: dict[str, Any] = {
        "job": lambda: make_job(run_after=HOUR),
        "archivedjob": lambda: make_archived_job(**a_mail()),
        "deadletter": make_dead_letter,
        "pipelinerun": make_live_run if name == "stop" else make_run,
        "schedule": lambda: make_schedule(paused_at=since),
        "topic": make_topic,
        "subscription": lambda: make_subscription(
            source="user" if name == "remove" else "code", disabled_at=since
        ),
    }
    return makers[noun]().pk


def make_acted_on_workflow(name: str) -> int:
    """Return the id of one that runs, that has failed, or that needs a human."""
    if name == "resolve":
        undo = {"kind": "compensation", "state": "dead", "compensates": 0}
        saga = {"kind": "saga", "state": "compensating"}
        return make_workflow([{"state": "succeeded"}, undo], **saga).pk
    result = chain(fails_at.s(1, 1), give.s()).delay()
    if name in ("retry-dead", "restart"):
        drain(raise_errors=False)
    return int(result.id)


# What an act could change.
CHANGED = (
    *(Job, ArchivedJob, DeadLetter, Queue, Lane, PipelineRun, Failure, Schedule, Tick),
    *(Subscription, Topic, ConsumerGroup, Position, Workflow),
    *(BulkAct, LogEntry),
)


def snapshot() -> dict[str, Any]:
    """Return the rows of CHANGED as text, by their table."""
    tables = [model._meta.db_table for model in CHANGED]
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ALL ".join(
                f"SELECT '{table}', array_agg(r::text ORDER BY r::text) FROM {table} r"
                for table in tables
            )
        )
        return dict(cursor.fetchall())
