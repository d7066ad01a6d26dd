"""Pages by key: every row once, whatever comes and goes meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.admin import keyset_list
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_jobs,
)

pytestmark = pytest.mark.django_db

JOBS = "/admin/pgqueue/job/"
DEAD = "/admin/pgqueue/deadletter/"

PAGE = 50


def page(client, url):
    """Return the list that the page at *url* shows."""
    response = client.get(url)
    assert 200 == response.status_code
    return response.context["cl"]


def walk(client, url, link, query=""):
    """Return the ids of every page, from the one at *query* on along *link*."""
    ids, pages = [], []
    while query is not None:
        shown = page(client, url + query)
        pages.append([row.pk for row in shown.result_list])
        ids += pages[-1]
        query = getattr(shown, link)
    return ids, pages


def test_older_leads_over_every_row_once(admin_client):
    """Three pages of 120 rows, newest first, and an end."""
    ids = make_jobs(120)

    seen, pages = walk(admin_client, JOBS, "older_url")

    assert ids[::-1] == seen
    assert [50, 50, 20] == [len(rows) for rows in pages]


def test_newer_leads_back(admin_client):
    """From the oldest page up; the newest one is a whole page."""
    ids = make_jobs(120)
    oldest = page(admin_client, JOBS).oldest_url

    _seen, pages = walk(admin_client, JOBS, "newer_url", oldest)

    assert ids[:50][::-1] == pages[0]
    assert ids[50:100][::-1] == pages[1]
    assert ids[-50:][::-1] == pages[2]
    assert 3 == len(pages)


def test_links_are_there_where_rows_are(admin_client):
    """The first page has nothing newer, the last nothing older, one page neither."""
    make_jobs(50)
    only = page(admin_client, JOBS)
    make_jobs(1)
    first = page(admin_client, JOBS)
    last = page(admin_client, JOBS + first.older_url)

    assert (None, None) == (only.newer_url, only.older_url)
    assert (None, None) == (first.newer_url, first.newest_url)
    assert first.oldest_url
    assert (None, None) == (last.older_url, last.oldest_url)
    assert last.newest_url
    assert page(admin_client, JOBS + last.newer_url).result_list[0].pk > 0
    assert [1] == [len(last.result_list)]


def test_rows_that_come_meanwhile_move_no_page(admin_client):
    """Pages by number would show the last row of page one again on page two."""
    ids = make_jobs(100)
    older = page(admin_client, JOBS).older_url
    make_jobs(30)
    Job.objects.filter(pk__in=ids[60:70]).delete()

    shown = page(admin_client, JOBS + older)

    assert ids[:50][::-1] == [row.pk for row in shown.result_list]


def test_dead_letters_of_one_instant_are_shown_once_each(admin_client):
    """A settle writes a whole batch with one time: the id tells them apart."""
    moment = make_dead_letter().finished_at
    rows = [make_dead_letter(finished_at=moment).pk for _ in range(119)]

    down, _ = walk(admin_client, DEAD, "older_url")
    _up, pages = walk(admin_client, DEAD, "newer_url", "?oldest=1")

    assert 120 == len(down) == len(set(down))
    assert down == sorted(down, reverse=True)
    assert {*rows} < {*down}
    assert down[-50:] == pages[0]
    assert down[20:70] == pages[1]
    assert down[:50] == pages[2]


def test_an_empty_list_says_so(admin_client):
    """No rows at all, and none that match."""
    assert b"No rows here." in admin_client.get(JOBS).content
    assert b"No rows match." in admin_client.get(JOBS, {"queue": "x"}).content


@pytest.mark.parametrize("window", [1, 7, 50, 51, 1_000])
def test_filtered_rows_are_found_in_windows(admin_client, monkeypatch, window):
    """Down and up, each matching row once, however small the windows are."""
    monkeypatch.setattr(keyset_list, "LOOK_ROWS_MAX", window)
    # Each window is a page to be opened: of the small ones, some are enough.
    for _ in range(8 if window >= PAGE else 2):
        make_jobs(9)
        make_jobs(7, queue="mail")
    ids = list(Job.objects.filter(queue="mail").order_by("-pk").values_list("pk"))

    down, pages = walk(admin_client, JOBS, "older_url", "?queue=mail")
    up, _ = walk(admin_client, JOBS, "newer_url", "?queue=mail&oldest=1")

    assert [pk for (pk,) in ids] == down
    assert {pk for (pk,) in ids} == set(up)
    if window == 1_000:
        assert [50, 6] == [len(rows) for rows in pages]


@pytest.mark.parametrize("name", ["job", "archivedjob", "deadletter"])
def test_a_search_looks_through_a_bounded_number_of_rows(
    admin_client, monkeypatch, name
):
    """It says how far it looked, and leads on to the rest."""
    monkeypatch.setattr(keyset_list, "LOOK_ROWS_MAX", 30)
    make = {
        "job": make_job,
        "archivedjob": make_archived_job,
        "deadletter": make_dead_letter,
    }[name]
    needle = make(queue="rare", **old(name, 200))
    for age in range(100, 0, -1):
        make(**old(name, age))
    url = f"/admin/pgqueue/{name}/"

    response = admin_client.get(url, {"queue": "rare"})
    seen, pages = walk(admin_client, url, "older_url", "?queue=rare")

    assert b"Looked through 30 rows" in response.content
    assert [[], [], [], [needle.pk]] == pages
    assert [needle.pk] == seen
    found = page(admin_client, f"{url}?queue=rare&oldest=1")
    assert [needle.pk] == [row.pk for row in found.result_list]
    assert found.goes_up


def test_an_id_is_found_without_a_search(admin_client, monkeypatch):
    """The primary key serves it, so there is nothing to look through."""
    monkeypatch.setattr(keyset_list, "LOOK_ROWS_MAX", 0)
    ids = make_jobs(3)

    shown = page(admin_client, f"{JOBS}?q={ids[0]}")

    assert [ids[0]] == [row.pk for row in shown.result_list]
    assert shown.looked_through is None


def test_a_page_costs_one_query_for_its_rows(admin_client, django_assert_num_queries):
    """User, the limits of a short transaction, and the rows; no count."""
    for model in (Job, ArchivedJob, DeadLetter):
        admin_client.get(f"/admin/pgqueue/{model._meta.model_name}/")
        # Of them two savepoints and a reset, as this test is a transaction itself.
        with django_assert_num_queries(3 + 3):
            admin_client.get(f"/admin/pgqueue/{model._meta.model_name}/")


def old(name, seconds):
    return {"finished_at": -timedelta(seconds=seconds)} if name == "deadletter" else {}
