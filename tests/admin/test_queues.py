"""Queues: how much waits in each; pause and resume."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages

from django_pgqueue.models import Queue
from tests.harness.factories import (
    make_dead_letter,
    make_job,
    make_jobs,
    make_leased_job,
)

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/queue/"
HOUR = timedelta(hours=1)


def texts(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def cell(html, name):
    """Return what stands in a column of the list's only row."""
    found = re.search(rf'<td class="field-{name}[^"]*">(.*?)</td>', html, re.DOTALL)
    return found and found[1].strip()


def pause(client, *names, reason="provider is down", **more):
    return client.post(
        URL,
        {
            "action": "pause",
            "_selected_action": names,
            "confirmed": "1",
            "reason": reason,
            **more,
        },
    )


@pytest.fixture
def mail():
    return Queue.objects.create(name="mail")


def test_a_queue_shows_how_much_waits_in_each_state(admin_client, mail):
    """In the list, and on its page with links to those jobs."""
    make_jobs(3, queue="mail", visible_at=-timedelta(minutes=7))
    make_job(queue="mail", run_after=HOUR)
    make_leased_job(queue="mail")
    make_job(queue="mail", visible_at=HOUR, attempt=1, deliveries=1)
    make_job(queue="mail", lane="x")
    make_dead_letter(queue="mail")
    make_job(queue="other")

    (row,) = admin_client.get(URL).context["cl"].result_list
    html = admin_client.get(f"{URL}mail/change/").content.decode()

    stats = row.stats
    assert (3, 1, 1, 1, 1, 1) == (
        stats.ready,
        stats.scheduled,
        stats.running,
        stats.retrying,
        stats.parked,
        stats.dead,
    )
    assert 'href="/admin/pgqueue/job/?queue=mail&amp;state=ready">3</a>' in html
    assert 'href="/admin/pgqueue/deadletter/?queue=mail">1</a>' in html
    assert "7 min" in html


def test_a_limit_is_set_and_taken_back(staff, mail, settings):
    """By whoever may pause; empty fields are what the settings say."""
    client, url = staff("view_queue", "pause"), f"{URL}mail/limit/"
    said = {"jobs": 5, "rate": "100/m", "burst": 2, "confirmed": 1}

    response = client.post(url, said, follow=True)

    assert ["1 changed."] == texts(response)
    assert (5, 0.6, 2) == Queue.objects.values_list(
        "concurrency", "rate_spacing", "rate_burst"
    ).get()
    assert "0 of 5 run, 100/min" == cell(client.get(URL).content.decode(), "limit")
    entry = LogEntry.objects.get().get_change_message()
    assert "Limit: at a time 5, rate 100/m (2)." == entry
    response = client.post(url, said, follow=True)
    assert "1 had this limit already." == texts(response)[-1]

    settings.PGQUEUE = {"QUEUES": {"mail": {"concurrency": 20}}}
    client.post(url, {"confirmed": 1})
    assert "0 of 20 run" == cell(client.get(URL).content.decode(), "limit")
