"""Rows for every page of the admin, and the pages that show them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.admin.utils import quote
from django.db import connection
from django.db.models.functions import Now

from django_pgqueue.models import BulkAct, Job, Queue, Worker
from django_pgqueue.queues import lane_controls, lanes, workers
from tests.browser.pipeline_rows import make_pipeline_rows
from tests.browser.schedule_rows import make_schedule_rows, schedule_paths
from tests.browser.topic_rows import make_topic_rows, topic_paths
from tests.browser.workflow_rows import make_workflow_rows, workflow_paths
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_jobs,
    make_leased_job,
)

HOUR = timedelta(hours=1)


def error(attempt: int, text: str = "declined by the bank") -> dict[str, Any]:
    """Return an entry of a job's errors."""
    return {
        "kind": "error",
        "type": "shop.payments.CardDeclined",
        "message": text,
        "traceback": 'Traceback (most recent call last):\n  File "/srv/shop/tasks.py", '
        f"line 41, in charge\n    bank.charge(order)\nCardDeclined: {text}\n",
        "attempt": attempt,
        "delivery": attempt,
        "worker": "web-1:4711:ab12",
        "at": "2026-11-20T20:10:00+00:00",
        "ran_seconds": 1.25,
    }


def make_rows() -> list[str]:
    """Make a row of each kind that people meet, and return the paths of their pages."""
    headers = {"tags": ["vip", "invoice"], "trace": "00-4bf9-00f0-01"}
    arguments = {
        "args": [4711, {"lines": [{"sku": "A-1", "count": 2}] * 3}],
        "kwargs": {"amount": "19.90", "api_token": "s3cret", "note": "please hurry"},
        "headers": headers,
    }
    task = "shop.tasks.charge_the_customer"
    jobs = [
        make_job(task=task, queue="payments", **arguments),
        make_job(task="shop.tasks.nightly_report", run_after=5 * HOUR, priority=-10),
        make_leased_job(
            "web-1:4711:ab12",
            task=task,
            queue="payments",
            progress={"done": 40, "total": 100, "note": "halfway"},
            attempt=2,
            deliveries=2,
            errors=[error(1)],
            **arguments,
        ),
        make_job(
            task="shop.tasks.send_mail",
            queue="mail",
            visible_at=HOUR / 2,
            attempt=1,
            deliveries=1,
            errors=[error(1, "connection refused")],
        ),
        make_job(task="shop.tasks.sync_account", lane="account-7"),
    ]
    archived = [
        make_archived_job(task=task, result={"id": 7, "ok": True}, **arguments),
        make_archived_job(task="shop.tasks.send_mail", state="cancelled"),
        make_archived_job(task="shop.tasks.send_mail", state="expired"),
    ]
    letters = [
        make_dead_letter(
            task=task,
            queue="payments",
            errors=[error(n, "declined, code=51, token=abc123") for n in (1, 2, 3)],
            **arguments,
        ),
        make_dead_letter(
            task="shop.tasks.send_mail",
            queue="mail",
            reason="worker_lost",
            errors=[{"kind": "worker_lost", "message": "signal 9", "worker": "w-2"}],
        ),
    ]
    Queue.objects.create(name="default")
    Queue.objects.create(name="mail")
    payments = Queue.objects.create(name="payments")
    Queue.objects.filter(name="mail").update(
        paused_at=payments.created_at, paused_by="ada", pause_reason="provider is down"
    )
    register("web-1:4711:ab12", hostname="web-1")
    register("web-2:99:cd34", hostname="web-2", queues=["mail", "payments"])
    Worker.objects.filter(hostname="web-2").update(
        heartbeat_at=payments.created_at - timedelta(minutes=9)
    )
    lanes = make_lanes()
    keys = make_pipeline_rows()
    return [
        "/admin/pgqueue/",
        *lane_paths(lanes),
        *paths(jobs, archived, letters, ["payments", "mail"], ["web-1:4711:ab12"]),
        *pipeline_paths(**keys),
        *schedule_paths(make_schedule_rows()),
        *topic_paths(make_topic_rows()),
        *workflow_paths(make_workflow_rows()),
        *bulk_paths(make_bulk_acts()),
    ]


def make_bulk_acts() -> list[int]:
    """Make one that goes on, and one that has failed; return their ids."""
    asked = {
        "filters": {
            "task": "shop.tasks.send_mail",
            "since": "2026-11-20T20:10:00+00:00",
        },
        "asked_by": "a-colleague@example.com",
        "reason": "their API answers again",
        "counted": 48_211,
        "top": 90_000,
    }
    goes_on = BulkAct.objects.create(
        verb="redrive", state="running", done=1_200, passed=3, tries=2, **asked
    )
    failed = BulkAct.objects.create(
        verb="set_aside",
        state="failed",
        ended_at=goes_on.created_at,
        is_more=True,
        error="OperationalError: canceling statement due to statement timeout",
        **asked,
    )
    return [goes_on.pk, failed.pk]


def bulk_paths(acts: list[int]) -> list[str]:
    """Return the paths of every page of bulk acts, the first of which goes on."""
    admin = "/admin/pgqueue"
    return [
        f"{admin}/bulkact/",
        *(f"{admin}/bulkact/{key}/change/" for key in acts),
        f"{admin}/bulkact/{acts[0]}/history/",
        f"{admin}/bulkact/{acts[0]}/stop/",
        f"{admin}/deadletter/all-redrive/?queue=mail",
        f"{admin}/deadletter/all-set-aside/",
        f"{admin}/job/all-retry/",
        f"{admin}/job/all-cancel/?queue=payments",
    ]


def make_lanes() -> list[str]:
    """Make lanes in every state that people meet; return their names."""
    group, limit = "shop.tasks.charge_the_customer:4711", "shop.tasks.sync_account:eu-1"
    first, *_ = make_jobs(3, task="shop.tasks.charge_the_customer", lane=group)
    make_jobs(9, task="shop.tasks.sync_account", lane=limit, lane_capacity=3)
    later, idle = "shop.tasks.sync_account:eu-2", "shop.tasks.sync_account:us-1"
    make_job(task="shop.tasks.sync_account", lane=later, run_after=HOUR)
    with connection.cursor() as cursor:
        lanes.promote(cursor, [group, limit])
        lane_controls.set_capacity(cursor, limit, 2)
        reason = "their API answers 503 since this morning"
        lane_controls.pause(cursor, limit, by="ada", reason=reason, until=2 * HOUR)
        lane_controls.pause(cursor, idle, by="a-colleague@web-1 (command line)")
    Job.objects.filter(pk=first).update(
        leased_by="web-1:4711:ab12",
        leased_at=Now() - HOUR / 15,
        visible_at=Now() + HOUR,
    )
    return [group, limit, later, idle]


def lane_paths(names: list[str]) -> list[str]:
    """Return the paths of every page that shows lanes, two of them with their acts."""
    admin = "/admin/pgqueue/lane"
    return [
        f"{admin}/",
        *(f"{admin}/{quote(name)}/change/" for name in names),
        *(f"{admin}/{quote(names[0])}/{look}/" for look in ("pause", "release")),
        f"{admin}/{quote(names[0])}/history/",
        f"{admin}/{quote(names[1])}/capacity/",
    ]


def pipeline_paths(runs: Any, failures: Any) -> list[str]:
    """Return the paths of every page that shows these runs and failures."""
    admin = "/admin/pgqueue"
    return [
        f"{admin}/taskhour/?period=7d",
        f"{admin}/taskhour/?queue=mail&task=shop.tasks.send_mail",
        f"{admin}/failure/",
        f"{admin}/failure/{failures[0]}/change/",
        f"{admin}/deadletter/?kind={failures[0]}",
        f"{admin}/pipelinerun/",
        *(f"{admin}/pipelinerun/{key}/change/" for key in runs[::2]),
        f"{admin}/pipelinerun/{runs[0]}/stop/",
        f"{admin}/pipelinerun/run/",
        f"{admin}/pipelinerun/run/?job=metrics",
    ]


def register(name: str, *, hostname: str = "host", queues: Any = ()) -> None:
    """Write the row of a worker."""
    with connection.cursor() as cursor:
        workers.register(
            cursor,
            name=name,
            hostname=hostname,
            pid=4711,
            queues=queues,
            threads=8,
            version="0.1.0",
        )


def paths(
    jobs: Any, archived: Any, letters: Any, queues: Any, worker_names: Any
) -> list[str]:
    """Return the paths of every page that shows these rows."""
    admin = "/admin/pgqueue"
    found = ["/admin/", "/admin/pgqueue/"]
    for name, rows in (
        ("job", [row.pk for row in jobs]),
        ("archivedjob", [row.pk for row in archived]),
        ("deadletter", [row.pk for row in letters]),
        ("queue", queues),
        ("worker", worker_names),
    ):
        found.append(f"{admin}/{name}/")
        found.extend(f"{admin}/{name}/{quote(key)}/change/" for key in rows)
        found.append(f"{admin}/{name}/{quote(rows[0])}/history/")
    job, letter, queue = jobs[0].pk, letters[0].pk, quote(queues[0])
    return [
        *found,
        f"{admin}/job/{job}/edit/",
        f"{admin}/job/{job}/cancel/",
        f"{admin}/deadletter/{letter}/edit/",
        f"{admin}/deadletter/{letter}/redrive-to/",
        f"{admin}/deadletter/{letter}/set-aside/",
        f"{admin}/deadletter/{letter}/purge/",
        f"{admin}/deadletter/groups/",
        f"{admin}/job/groups/",
        f"{admin}/queue/{queue}/pause/",
    ]
