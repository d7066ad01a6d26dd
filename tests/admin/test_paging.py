"""Pages by key: every row once, whatever comes and goes meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.apps import apps
from django.contrib import admin

from django_pgqueue.admin import keyset_list
from django_pgqueue.models import Job
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_jobs,
    make_schedule,
    make_workflow,
)
from tests.log.rows import make_message, make_subscription

pytestmark = pytest.mark.django_db

# Of one instant, as a settle writes a whole batch: the id tells them apart.
DIED_AT = "2026-01-01 00:00Z"

# Rows in the order of their list, seven of each noun.
MAKERS = {
    "job": lambda: make_jobs(7)[::-1],
    "archivedjob": lambda: [make_archived_job().pk for _ in range(7)][::-1],
    "deadletter": lambda: [make_dead_letter(finished_at=DIED_AT).pk for _ in range(7)][
        ::-1
    ],
    "message": lambda: [make_message().pk for _ in range(7)][::-1],
    "workflow": lambda: [make_workflow().pk for _ in range(7)][::-1],
    "schedule": lambda: [make_schedule(name=name).pk for name in "abcdefg"],
    "subscription": lambda: [
        make_subscription("orders", queue=name).pk for name in "abcdefg"
    ],
    "lane": lambda: [make_job(lane=name, task=f"t.{name}").lane for name in "abcdefg"],
}


def page(client, url):
    """Return the list that the page at *url* shows."""
    response = client.get(url)
    assert 200 == response.status_code
    return response.context["cl"]


def walk(client, url, link, query=""):
    """Return the keys on each page, from the one at *query* on along *link*."""
    pages = []
    while query is not None:
        shown = page(client, url + query)
        pages.append([row.pk for row in shown.result_list])
        query = getattr(shown, link)
    return pages


# Without time zones, a place that is a time is written in another way.
@pytest.mark.parametrize(
    "noun,use_tz", [*((noun, True) for noun in MAKERS), ("deadletter", False)]
)
def test_pages_lead_over_every_row_once(
    admin_client, monkeypatch, settings, noun, use_tz
):
    """Down and back up; the first page has nothing before it, the last none behind."""
    settings.USE_TZ = use_tz
    model_admin = admin.site.get_model_admin(apps.get_model("pgqueue", noun))
    monkeypatch.setattr(type(model_admin), "list_per_page", 3)
    keys = MAKERS[noun]()
    url = f"/admin/pgqueue/{noun}/"

    down = walk(admin_client, url, "older_url")
    first, last = page(admin_client, url), page(admin_client, f"{url}?oldest=1")

    assert [keys[:3], keys[3:6], keys[6:]] == down
    assert [keys[4:], keys[1:4], keys[:3]] == walk(
        admin_client, url, "newer_url", "?oldest=1"
    )
    assert (None, None) == (first.newer_url, first.newest_url)
    assert (None, None) == (last.older_url, last.oldest_url)


def test_rows_that_come_meanwhile_move_no_page(admin_client):
    """Pages by number would show the last row of page one again on page two."""
    ids = make_jobs(100)
    url = "/admin/pgqueue/job/"
    older = page(admin_client, url).older_url
    make_jobs(30)
    Job.objects.filter(pk__in=ids[60:70]).delete()

    shown = page(admin_client, url + older)

    assert ids[:50][::-1] == [row.pk for row in shown.result_list]


@pytest.mark.parametrize("noun", ["job", "archivedjob", "deadletter"])
def test_a_search_looks_through_a_bounded_number_of_rows(
    admin_client, monkeypatch, noun
):
    """It says how far it looked, and leads on to the rest; an id is found at once."""
    monkeypatch.setattr(keyset_list, "LOOK_ROWS_MAX", 3)
    make = {
        "job": make_job,
        "archivedjob": make_archived_job,
        "deadletter": make_dead_letter,
    }[noun]
    is_dead = noun == "deadletter"
    needle = make(
        queue="rare", **({"finished_at": -timedelta(hours=1)} if is_dead else {})
    )
    for _ in range(7):
        make()
    url = f"/admin/pgqueue/{noun}/"

    response = admin_client.get(url, {"queue": "rare"})

    assert b"Looked through 3 rows" in response.content
    assert [[], [], [needle.pk]] == walk(admin_client, url, "older_url", "?queue=rare")
    up = page(admin_client, f"{url}?queue=rare&oldest=1")
    assert [needle.pk] == [row.pk for row in up.result_list]
    assert up.goes_up
    found = page(admin_client, f"{url}?q={needle.pk}")
    assert [needle.pk] == [row.pk for row in found.result_list]
    assert found.looked_through is None
    assert b"No rows match." in admin_client.get(url, {"q": "777777777"}).content
