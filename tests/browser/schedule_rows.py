"""Schedules of a shop, and the pages that show them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_declared,
    make_job,
    make_schedule,
    make_tick,
)

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
ADMIN = "/admin/pgqueue/schedule"


def make_schedule_rows() -> list[Any]:
    """Make a schedule of each kind that people meet; return their keys."""
    nightly = make_declared(
        name="shop.reports.tasks.nightly_report_of_everything_that_was_sold",
        task="shop.reports.tasks.nightly_report_of_everything_that_was_sold",
        expression="30 4 * * 1-5",
        declared={"expression": "0 3 * * *", "kwargs": {"api_token": "s3cret-old"}},
        kwargs={"region": "eu", "api_token": "s3cret", "note": "since the move"},
        overridden_at=-DAY,
        overridden_by="ada",
        jitter_seconds=600,
        queue="reports",
        next_tick=5 * HOUR,
        last_tick=-19 * HOUR,
        last_declared_at=-2 * DAY,
        ticks_from=-2 * DAY,
    )
    jobs = [
        make_job(task=nightly.task),
        make_dead_letter(task=nightly.task, started_at=-3 * HOUR),
        make_archived_job(task=nightly.task, started_at=-timedelta(seconds=95)),
    ]
    for days, job in enumerate(jobs):
        due = -days * DAY - 2 * HOUR
        make_tick(
            nightly,
            due_at=due,
            ticked_at=due + timedelta(seconds=days * 40),
            job_id=job.pk,
            missed=days * 2,
        )
    make_tick(nightly, due_at=-HOUR, outcome="overlap")
    make_tick(nightly, due_at=-HOUR / 2, job_id=jobs[0].pk, asked_by="ada")
    make_tick(nightly, due_at=-9 * DAY, ticked_at=-9 * DAY, job_id=1)
    schedules = [
        nightly,
        make_declared(
            name="shop.tasks.poll_the_provider",
            task="shop.tasks.poll_the_provider",
            every_seconds=15,
            tz="UTC",
            paused_at=-HOUR,
            paused_by="ada",
            pause_reason="the provider is down until the end of the week, they say",
        ),
        make_declared(
            name="shop.tasks.sync_accounts",
            task="shop.tasks.sync_accounts",
            expression="5,35 9-17 * * 1-5",
            tz="America/New_York",
            next_tick=-HOUR,
            ticks_from=-DAY,
        ),
        make_declared(
            name="shop.tasks.old_report",
            task="shop.tasks.old_report",
            withdrawn_at=-DAY,
            last_declared_at=-30 * DAY,
        ),
        make_schedule(
            name="Remind Ada",
            task="shop.tasks.send_mail",
            expression="0 0 8 l * *",
            kwargs={"to": "ada@example.org"},
            created_by="ada",
        ),
        make_schedule(
            name="from a script",
            task="shop.tasks.send_mail",
            tz="Mars/Olympus",
            error="There is no time zone 'Mars/Olympus' here.",
        ),
    ]
    return [row.pk for row in schedules]


def schedule_paths(keys: list[Any]) -> list[str]:
    """Return the paths of each kind of page that shows these schedules."""
    overridden, _every, _overdue, withdrawn, user, faulty = keys
    return [
        f"{ADMIN}/",
        *(f"{ADMIN}/{key}/change/" for key in (overridden, withdrawn, faulty)),
        f"{ADMIN}/{overridden}/history/",
        f"{ADMIN}/{overridden}/edit/",
        f"{ADMIN}/{user}/remove/",
        f"{ADMIN}/new/",
    ]
