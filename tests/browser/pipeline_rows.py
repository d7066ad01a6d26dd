"""What the pipeline has found in days of a shop: rows for charts, failures and runs."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from typing import Any

from django_pgqueue.models import TaskHour
from tests.harness.factories import (
    hour_ago,
    make_dead_letter,
    make_failure,
    make_live_run,
    make_run,
)

NIGHTLY = "shop.reports.tasks.nightly_report_of_everything_that_was_sold"

# Task, queue, jobs in the busiest hour, seconds that one runs, part that fails.
TASKS = (
    ("shop.tasks.charge_the_customer", "payments", 900, 1.4, 0.03),
    ("shop.tasks.send_mail", "mail", 2_600, 0.35, 0.01),
    ("shop.tasks.sync_account", "default", 400, 4.0, 0.002),
    ("shop.tasks.resize_image", "images", 700, 2.2, 0.0),
    ("shop.tasks.call_webhook", "default", 1_100, 0.8, 0.12),
    (
        "shop.reports.tasks.nightly_report_of_everything_that_was_sold",
        "reports",
        12,
        240.0,
        0.0,
    ),
)


def error(text: str, line: str = "bank.charge(order)") -> dict[str, Any]:
    """Return an error as workers note it."""
    return {
        "kind": "error",
        "type": "shop.payments.CardDeclined",
        "message": text,
        "traceback": 'Traceback (most recent call last):\n  File "/srv/shop/tasks.py", '
        f"line 41, in charge\n    {line}\nshop.payments.CardDeclined: {text}\n",
        "attempt": 3,
        "delivery": 3,
        "worker": "web-1:4711:ab12",
        "at": "2026-11-20T20:10:00+00:00",
        "ran_seconds": 1.25,
    }


def make_task_hours(hours: int) -> None:
    """Make the hours of all TASKS, as busy as the time of day has it."""
    dice = random.Random(7)
    rows = []
    for ago in range(hours):
        hour = hour_ago(ago)
        day = 0.12 + max(math.sin((hour.hour - 6) / 24 * 2 * math.pi), 0.0)
        for task, queue, most, seconds, failing in TASKS:
            ended = round(most * day * dice.uniform(0.7, 1.1))
            if not ended or (most < 100 and hour.hour != 3):
                continue
            is_bad = task.endswith("webhook") and ago % 31 < 3
            failed = round(
                ended * (0.4 if is_bad else failing) * dice.uniform(0.5, 1.5)
            )
            dead = failed // 9
            busy = 0.05 + 2.5 * day * dice.uniform(0.5, 2) * (4 if is_bad else 1)
            run = seconds * dice.uniform(0.9, 1.2)
            rows.append(
                TaskHour(
                    hour=hour,
                    queue=queue,
                    task=task,
                    started=ended + failed,
                    succeeded=ended - dead,
                    failed=failed,
                    retried=failed - dead,
                    dead=dead,
                    wait_p50=busy / 6,
                    wait_p95=busy,
                    wait_p99=busy * 2,
                    oldest_wait=busy * 4,
                    run_p50=run,
                    run_p95=run * dice.uniform(2, 3),
                    run_p99=run * 5,
                    worker_seconds=run * (ended + failed),
                )
            )
    TaskHour.objects.bulk_create(rows, batch_size=2_000)


def make_pipeline_rows(hours: int = 30) -> dict[str, list[Any]]:
    """Make rows for every page of the pipeline; return keys of those that have one."""
    make_task_hours(hours)
    declined = error("declined by the bank: code 51, token=abc123")
    failures = [
        make_failure(
            declined, hours={n: 3 + n % 5 * 9 for n in range(26)}, dead_letters=4
        ),
        make_failure(
            {
                "type": "builtins.TimeoutError",
                "message": "no answer of 10.1.2.3 in 5 s",
            },
            hours=dict.fromkeys(range(1, 9), 2),
            tasks=["shop.tasks.call_webhook", "shop.tasks.send_mail"],
        ),
        make_failure({"kind": "worker_lost", "message": "signal 9"}, hours={20: 1}),
    ]
    for _ in range(3):
        make_dead_letter(
            task="shop.tasks.charge_the_customer", queue="payments", errors=[declined]
        )
    hour = timedelta(hours=1)
    runs = [
        make_run(started_at=-3 * hour, finished_at=-2.99 * hour, lease_until=-hour),
        make_run(
            state="failed",
            job="failures",
            started_at=-2 * hour,
            finished_at=-1.9 * hour,
            options={"keep": "90d"},
            error="SparkError: The table pgqueue_archived_job cannot be read:\n"
            "  password authentication failed for user 'worker'",
            rows_out=0,
        ),
        make_run(
            job="failures",
            state="running",
            finished_at=None,
            started_at=-hour,
            lease_until=-hour / 2,
            progress={"phase": "reading", "tasks_done": 1, "tasks": 4},
            options={"keep": "90d"},
        ),
        make_live_run(queue_job_id=4711, asked_by="job 4711"),
    ]
    return {
        "runs": [run.pk for run in reversed(runs)],
        "failures": [failure.pk for failure in failures],
    }
