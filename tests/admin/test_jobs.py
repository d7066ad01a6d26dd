"""The jobs in the queue: their state, and retry now."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.messages import get_messages
from django.db import connection

from django_pgqueue.models import ArchivedJob, Job
from django_pgqueue.queues.find import find
from tests.harness.factories import (
    make_archived_job,
    make_job,
    make_leased_job,
)

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/job/"
HOUR = timedelta(hours=1)


def in_every_state():
    """Return a job of each state, by the state's name."""
    return {
        "scheduled": make_job(run_after=HOUR),
        "ready": make_job(),
        "running": make_leased_job("web-1:42"),
        "retrying": make_job(visible_at=HOUR, attempt=1, deliveries=1),
        "parked": make_job(lane="account-7"),
    }


def make_failed(path="shop/pay.py", **columns):
    """Insert a job whose last attempt failed in *path*, and which waits."""
    entry = {
        "kind": "error",
        "type": "shop.errors.CardDeclined",
        "message": "declined\nat the bank",
        "traceback": f'  File "/srv/{path}", line 12, in charge',
        "at": "2026-11-20T20:10:00+00:00",
    }
    told = {"visible_at": HOUR, "attempt": 1, "deliveries": 1, "errors": [entry]}
    return make_job(**{**told, **columns})


def texts(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_the_states_are_those_of_the_queue(admin_client):
    """The list derives a state as find() does, also of a lease that ran out."""
    jobs = in_every_state()
    lapsed = make_leased_job(visible_at=-HOUR)

    rows = admin_client.get(URL).context["cl"].result_list

    shown = {row.pk: row.state for row in rows}
    assert {job.pk: state for state, job in jobs.items()} | {
        lapsed.pk: "ready"
    } == shown
    with connection.cursor() as cursor:
        assert shown == {
            pk: found.status for pk, found in find(cursor, list(shown)).items()
        }


def test_the_list_is_narrowed_by_id_queue_and_part_of_a_task(admin_client):
    """Digits are an id; other text is part of a task's name; a queue is exact."""
    mail = make_job(task="shop.mail.send", queue="mail")
    report = make_job(task="shop.reports.nightly", queue="mailbox")

    def found(**query):
        rows = admin_client.get(URL, query).context["cl"].result_list
        return [row.pk for row in rows]

    assert [mail.pk] == found(q=str(mail.pk))
    assert [report.pk] == found(q="Reports")
    assert [mail.pk] == found(queue="mail")
    assert [] == found(queue="mail", q="nightly")
    assert [report.pk, mail.pk] == found()


def test_retry_now_makes_waiting_jobs_due_and_leaves_others_alone(staff):
    """Scheduled and retrying ones; not what runs, is parked, or has gone."""
    jobs = in_every_state()
    gone = make_archived_job()
    client = staff("view_job", "retry")

    response = client.post(
        URL,
        {
            "action": "retry",
            "_selected_action": [*(job.pk for job in jobs.values()), gone.pk],
        },
    )

    assert URL == response.url
    due = set(Job.objects.due().values_list("pk", flat=True))
    assert {jobs[name].pk for name in ("scheduled", "ready", "retrying")} == due
    left = "4 not waiting for a time: due, running, parked or ended."
    assert [f"2 due now. {left}"] == texts(response)


def test_a_job_that_has_moved_is_found_where_it_is(admin_client):
    """A link to a job leads to the archive once it has ended."""
    row = make_archived_job()

    response = admin_client.get(f"{URL}{row.pk}/change/")

    assert f"/admin/pgqueue/archivedjob/{row.pk}/change/" == response.url


# Cancel -------------------------------------------------------------------------------


def cancel(client, *ids, **data):
    return client.post(
        URL,
        {"action": "cancel", "_selected_action": ids, "confirmed": "1", **data},
    )


def test_cancel_archives_what_waits_and_asks_what_runs(staff):
    """The message says how many of each, and what had ended."""
    jobs = in_every_state()
    ended = make_archived_job()
    client = staff("view_job", "cancel")

    response = cancel(client, *(job.pk for job in jobs.values()), ended.pk)

    running = jobs.pop("running")
    assert (
        "4 cancelled. 1 running, asked to stop. 1 left: ended, or being moved just now."
    ) == texts(response)[0]
    assert [running.pk] == list(Job.objects.values_list("pk", flat=True))
    assert Job.objects.get().cancel_requested_at is not None
    cancelled = ArchivedJob.objects.filter(state="cancelled")
    assert {job.pk for job in jobs.values()} == {row.pk for row in cancelled}


# What retries, by error ---------------------------------------------------------------


def test_what_retries_is_grouped_by_task_error_and_place(admin_client):
    """Each count links to just the jobs that it counts."""
    for _ in range(2):
        make_failed(task="shop.pay")
    make_failed("shop/refund.py", task="shop.pay")
    # They do not wait for an attempt.
    make_failed(task="shop.pay", visible_at=timedelta(0))
    make_job()

    response = admin_client.get(f"{URL}groups/")
    html = response.content.decode()
    assert "Of all 3 jobs that wait for their next attempt." in html
    found = response.context["groups"]
    assert [2, 1] == [line["group"].count for line in found]
    rows = [admin_client.get(line["url"]).context["cl"].result_list for line in found]
    assert [2, 1] == list(map(len, rows))
    assert {"retrying"} == {row.state for row in rows[0]}
    assert f'href="{URL}groups/"' in admin_client.get(URL).content.decode()


def test_a_job_that_waits_to_run_alone_says_so(admin_client):
    """In the list and on its page; the next free worker would not take it."""
    job = make_job(runs_alone=True, crashes=1)

    for url in (URL, f"{URL}{job.pk}/change/"):
        html = admin_client.get(url).content.decode()
        assert "waits to run alone" in html
        assert "the next free worker takes it" not in html
