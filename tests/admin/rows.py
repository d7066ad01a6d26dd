"""A row of every noun that has pages, with a text in each column that takes one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from django_pgqueue.models import BulkAct, Lane, Queue, Subscription
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_declared,
    make_failure,
    make_job,
    make_live_run,
    make_run,
    make_schedule,
    make_task_hour,
    make_tick,
    make_workflow,
    register,
)
from tests.log.rows import (
    make_group,
    make_inbox_entry,
    make_message,
    make_position,
    make_subscription,
    make_topic,
)

HOUR = timedelta(hours=1)
NOW = timedelta(0)


def job_columns(text: str, **columns: Any) -> dict[str, Any]:
    """Return columns of a job with *text* in each that takes text, and in each key."""
    entry = dict.fromkeys(
        ["kind", "type", "message", "traceback", "worker", "by", "at", "attempt", text],
        text,
    )
    return {
        "queue": text[:63],
        "task": text,
        "args": [text],
        "kwargs": {text: text},
        "headers": {text: text, "tags": [text]},
        "progress": text,
        "errors": [entry, text],
        "lane": text,
        "dedup_key": text,
        "accumulate_key": text,
        **columns,
    }


def make_each(text: str) -> dict[str, list[Any]]:
    """Make rows of every noun, which refer to each other; return their keys by noun."""
    free = job_columns(text, lane=None, dedup_key=None)
    paused = {"paused_at": timezone.now(), "paused_by": text, "pause_reason": text}
    ago = {"paused_at": NOW, "paused_by": text, "pause_reason": text}
    Queue.objects.create(name=text, **paused)
    Lane.objects.create(name=text, **paused)
    register(text, hostname=text, queues=[text])
    topic = make_topic(text[:63], schema=text, declared={"partitions": text})
    message = make_message(
        text, {text: text}, key=text, headers={text: text}, topic_id=topic.pk
    )
    schedules = make_schedules(text, **ago)
    workflow = make_hostile_workflow(text)
    jobs = [
        make_job(
            **job_columns(text),
            workflow_id=workflow.pk,
            schedule_id=schedules[0].pk,
        ),
        make_job(**free, leased_by=text, visible_at=HOUR),
        make_job(**free, visible_at=HOUR, attempt=1, deliveries=1),
    ]
    failure = make_failure(
        {"type": "x"},
        error_class=text,
        message=text,
        place=text,
        tasks=[text],
        sample_message=text,
        sample_traceback=text,
    )
    make_task_hour(1, queue=text, task=text, failed=3, dead=1)
    letters = [
        make_dead_letter(**job_columns(text), worker=text),
        make_dead_letter(errors=[{"kind": "error", "type": "x"}]),
    ]
    act = {
        "verb": "redrive",
        "counted": 1,
        "top": 1,
        "filters": {"queue": text, "task": text},
        "asked_by": text,
        "reason": text,
        "error": text,
    }
    listeners = make_listeners(text, **ago)
    return {
        "job": [job.pk for job in jobs],
        "archivedjob": [
            make_archived_job(**job_columns(text, result={text: text}), worker=text).pk
        ],
        "deadletter": [letter.pk for letter in letters],
        "queue": [text],
        "lane": [text],
        "worker": [text],
        "pipelinerun": make_runs(text),
        "failure": [failure.pk],
        "schedule": [row.pk for row in schedules],
        "topic": [topic.pk],
        "message": [message.pk],
        "inboxentry": [make_inbox_entry(text[:40], text).pk],
        **listeners,
        "bulkact": [BulkAct.objects.create(**act).pk],
        "workflow": [workflow.pk],
    }


def make_schedules(text: str, **paused: Any) -> list[Any]:
    """Make one of a user, and one of code that was changed and withdrawn since."""
    columns = {
        "task": text,
        "kwargs": {text: text},
        "queue": text[:63],
        "expression": text,
        "tz": text,
        "created_by": text,
        "error": text,
        **paused,
    }
    rows = [
        make_schedule(name=text, **columns),
        make_declared(
            {"kwargs": {text: [text]}, "task": f"{text}2", "tz": f"{text}2"},
            name=f"{text}2",
            overridden_at=NOW,
            overridden_by=text,
            withdrawn_at=NOW,
            **columns,
        ),
    ]
    for row in rows:
        make_tick(row, asked_by=text, job_id=1)
    return rows


def make_hostile_workflow(text: str) -> Any:
    """Make one with a dead step, a few others, and enough of one kind for a table."""
    steps = [
        {
            "name": text,
            "kind": text[:12],
            "task": text,
            "state": state,
            "after": after,
            "job": {"args": [text], "kwargs": {text: text}},
            "result": {text: text},
            "error": {"type": text, "reason": text, "message": text},
        }
        for state, after in (("dead", ()), (text[:9], (0,)), ("waiting", (0, 1)))
    ]
    return make_workflow(steps, name=text, key=text, kind="canvas")


def make_runs(text: str) -> list[int]:
    """Make a run that goes on, whose address runs a script, and one that ended."""
    columns = {
        "job": text,
        "options": {text: text},
        "asked_by": text,
        "hostname": text,
        "error": text,
        "progress": {"phase": text, "tasks": 2, "tasks_done": 1},
        "ui_url": f"javascript:{text}",
        "cancel_requested_by": text,
    }
    return [make_live_run(**columns).pk, make_run(**columns).pk]


def make_listeners(text: str, **paused: Any) -> dict[str, list[int]]:
    """Make a subscription and a group that has halted in its partition."""
    short = text[:63]
    listener = {"task": text, "queue": short, "payload_filter": {text: text}}
    subscription = make_subscription(
        "orders",
        **listener,
        start=text[:40],
        disabled_at=NOW,
        disabled_by=text,
        disabled_reason=text,
    )
    Subscription.objects.update(pattern=text, topic=short)
    group = make_group(short, text, **listener, positions=1, start=text[:40], **paused)
    entry = dict.fromkeys(["kind", "type", "message", "traceback", "at", text], text)
    halted = {"errors": [entry, text], "halted_at": NOW, "halted_for": text[:9]}
    make_position(group, 0, **halted, leased_by=text, leased_until=NOW)
    return {"subscription": [subscription.pk], "consumergroup": [group.pk]}
