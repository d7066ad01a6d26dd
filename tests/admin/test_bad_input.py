"""URLs that nobody's browser made: never an error of the server."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest
from django.apps import apps
from django.contrib import admin

from django_pgqueue.models import ArchivedJob, Job
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_leased_job,
    make_workflow,
)
from tests.log.rows import make_message

pytestmark = pytest.mark.django_db

PAGES = ["job", "archivedjob", "deadletter", "queue", "worker", "pipelinerun"]
PAGES += ["taskhour", "failure", "schedule"]
PAGES += ["topic", "message", "subscription", "consumergroup", "workflow"]
PAGES += ["scheduledmessage", "inboxentry"]

OK = (200, 302, 400)

QUERIES = [
    "q=%00",
    "q=" + "x" * 10_000,
    "q=" + "9" * 5_000,
    "q=9223372036854775807",
    "q=9223372036854775808",
    "q=-1",
    "q=%25%27%5C_",
    "q=%ff%fe",
    "q=%D9%A1",  # A digit that is not one of ours.
    "queue=%00",
    "queue=" + "x" * 64,
    "tag=%00",
    "tag=" + "x" * 64,
    "tag=%22%5D",
    "tag=\\",
    "tag=vip&q=1&queue=x&state=ready",
    "age=x",
    "age=1h",
    "action=redrive&_selected_action=1&confirmed=1",
    "queue='%20OR%201=1--",
    "kind=x",
    "kind=%00",
    "kind=" + "0" * 32,
    "task=%00",
    "task=" + "x" * 300,
    "period=x",
    "period=%00",
    "topic=%00",
    "topic=" + "x" * 64,
    "topic=none&key=%00",
    "key=" + "x" * 1_001,
    "name=%00",
    "name=" + "x" * 300,
    "partition=x",
    "partition=%D9%A1",
    "partition=99999",
    "partition=9999&topic=orders",
    "since=x",
    "since=%00",
    "since=2026-01-31",
    "since=0001-01-01",
    "since=9999-12-31T23:59&topic=orders",
    "since=0001-01-01T00:00:00%2B14:00",
    "topic=orders&before=x",
    "topic=orders&after=-1",
    "topic=orders&q=9&key=x&partition=1&since=2026-01-31&oldest=1",
    "state=x",
    "state=%00",
    "state__exact=x",
    "reason=x",
    "source=x",
    "source=%00",
    "source=changed&state=paused&task=%25",
    "p=999999",
    "p=-1",
    "p=abc",
    "o=1.2.-3",
    "o=99.-x",
    "all=",
    "e=1",
    "_facets=True",
    "_popup=1",
    "_to_field=id",
    "_to_field=x",
    "id__in=" + ",".join(map(str, range(5_000))),
    "id__gt=abc",
    "task__regex=(((",
    "args__x=1",
    "user__password__startswith=p",
    "before=abc",
    "before=",
    "before=%00",
    "before=99999999999999999999999999",
    "before=-9223372036854775808",
    "after=9223372036854775807",
    "after=2026-11-20~1",
    "before=2026-11-20T00:00:00~1",
    "before=2026-11-20T00:00:00%2B00:00~abc",
    "before=2026-11-20T00:00:00%2B00:00~%00",
    "before=0001-01-01T00:00:00%2B14:00~1",
    "after=9999-12-31T23:59:59-12:00~1",
    "after=2026-13-45T99:00:00%2B00:00~1",
    "before=1&after=2&oldest=3",
    "oldest=x",
    "q=&q=%00&queue=a&queue=b",
]

# What every list reads: its place, and Django's words, which mean the same in each.
PLACE = {"before", "after", "oldest"}
DJANGOS = {"p", "o", "all", "e", "_facets", "_popup", "_to_field"}

IDS = [
    "abc",
    "0",
    "-1",
    str(2**63 - 1),
    str(2**63),
    str(2**70),
    "9" * 5_000,
    "1;drop",
    "1.0",
    "1e3",
    "%00",
    "0b9e5c5e-4f58-4b0e-9d3b-7b8f5b7a9d10",
    "../../job",
    "_5F_",
    "%F0%9F%90%98",
]

FORM = {
    "confirmed": "1",
    "queue": "x",
    "is_new": "on",
    "reason": "x",
    "args": "[]",
    "kwargs": "{}",
}

# Of Django, for each row.
CLOSED = {"history", "delete", "change"}


def admin_of(page):
    return admin.site.get_model_admin(apps.get_model("pgqueue", page))


def acts_on(page):
    """Return what can be done with a row of *page*, and what nothing can."""
    paths = [str(url.pattern).rstrip("/") for url in admin_of(page).get_urls()]
    ours = {path.removeprefix("<path:object_id>/") for path in paths} - {*paths}
    return [*sorted(ours - CLOSED), "no-such-act"]


def read_alike(page):
    """Return what the list of *page* reads just as that of jobs does."""
    if page == "job":
        return set()
    ours, theirs = type(admin_of(page)), type(admin_of("job"))
    is_by_id = ours.keyset is theirs.keyset
    is_alike = is_by_id and ours.get_changelist is theirs.get_changelist
    return DJANGOS | PLACE if is_alike else DJANGOS


def queries_for(form, left_out):
    """
    Return those that a list with *form* reads, and in a single one the others.

    Without those whose words are all *left_out*.
    """
    read = PLACE | DJANGOS | form.fields.keys()
    words = {query: parse_qs(query, True).keys() for query in QUERIES}
    others = [query for query in QUERIES if not words[query] & read]
    asked = [query for query in QUERIES if words[query] & read - left_out]
    return [*asked, "&".join(others)]


@pytest.mark.parametrize("page", PAGES)
def test_a_list_survives_any_query(admin_client, page):
    """200, 400, or a redirect to the plain list."""
    make_job()
    make_archived_job()
    make_dead_letter()
    make_message("orders")
    url = f"/admin/pgqueue/{page}/"

    context = admin_client.get(url).context
    form = context["cl" if "cl" in context else "filter_form"]
    queries = queries_for(getattr(form, "filter_form", form), read_alike(page))
    answers = {query: admin_client.get(f"{url}?{query}") for query in queries}

    statuses = {query: answer.status_code for query, answer in answers.items()}
    assert {} == {q: status for q, status in statuses.items() if status not in OK}
    moved = {answer.url for answer in answers.values() if answer.status_code == 302}
    assert moved <= {f"{url}?e=1"}


def test_the_steps_of_a_workflow_survive_any_query(admin_client):
    """They are a list on the page of one."""
    row = make_workflow([{"name": "a"}, {"name": "b", "after": [0]}])
    url = f"/admin/pgqueue/workflow/{row.pk}/change/"

    queries = queries_for(admin_client.get(url).context["cl"].filter_form, DJANGOS)
    answers = {query: admin_client.get(f"{url}?{query}") for query in queries}

    statuses = {query: answer.status_code for query, answer in answers.items()}
    assert {} == {q: status for q, status in statuses.items() if status not in OK}
    assert 200 == statuses["q=%00"]


@pytest.mark.parametrize("page", PAGES)
def test_a_row_that_cannot_be_is_not_found(admin_client, page):
    """Back to the list with a message; no history, nothing to act on."""
    # All read an id in one place, so some of them are enough for the acts.
    make_job()
    done = acts_on(page)
    for id_ in IDS:
        url = f"/admin/pgqueue/{page}/{id_}/"

        looks = [admin_client.get(f"{url}{look}/") for look in ("change", "history")]
        acts = [
            answer
            for act in (done if id_ in ("abc", str(2**63), "%00") else ())
            for answer in (
                admin_client.post(f"{url}{act}/", FORM),
                admin_client.get(f"{url}{act}/"),
            )
        ]

        assert [302, 302] == [answer.status_code for answer in looks], id_
        assert {answer.status_code for answer in acts} <= {200, 302, 404, 405}, id_


@pytest.mark.parametrize("page", PAGES)
def test_other_methods_do_nothing(admin_client, page):
    """405, or the page as for GET."""
    row = {
        "job": make_job,
        "archivedjob": make_archived_job,
        "deadletter": make_dead_letter,
    }.get(page, make_job)()

    for method in ("put", "patch", "delete", "options", "trace"):
        for path in ("", f"{row.pk}/change/"):
            response = getattr(admin_client, method)(f"/admin/pgqueue/{page}/{path}")
            assert response.status_code in (200, 405), method
    assert type(row).objects.filter(pk=row.pk).exists()


def test_a_filter_that_cannot_be_read_shows_nothing(admin_client):
    """An unreadable filter must not look like one that all rows fulfil."""
    make_job()

    response = admin_client.get("/admin/pgqueue/job/", {"state": "runing"})

    assert [] == response.context["cl"].result_list
    assert b"cannot be read" in response.content
    assert b"runing is not one of the available choices" in response.content


def test_parameters_that_are_no_field_are_ignored(admin_client):
    """No lookup and no order of the URL reaches the database."""
    jobs = [make_job() for _ in range(3)]

    response = admin_client.get("/admin/pgqueue/job/?id__lt=0&task__regex=((&o=1")

    shown = [row.pk for row in response.context["cl"].result_list]
    assert [job.pk for job in reversed(jobs)] == shown


@pytest.mark.parametrize("page", PAGES)
def test_any_post_to_a_list_is_survived(admin_client, page):
    """302 with a message, 400, or 405 of charts: whatever is ticked and sent."""
    make = {"job": make_job, "archivedjob": make_archived_job}.get(
        page, make_dead_letter
    )
    ids = [make().pk for _ in range(3)]
    acts = acts_on(page)
    posts = [
        *({"action": act, "_selected_action": ids[:1]} for act in acts),
        *({"action": act, "_selected_action": IDS, **FORM} for act in acts),
        *({"action": act, **FORM} for act in ("", "facts", "__class__", "\x00")),
        {"action": acts[0], "_selected_action": [str(ids[0])] * 600, **FORM},
        {"action": "x" * 5_000, "select_across": "1", "index": "x"},
        {"action": acts[0], "_selected_action": "\x00"},
    ]

    for data in posts:
        answer = admin_client.post(f"/admin/pgqueue/{page}/", data)
        assert answer.status_code in (200, 302, 400, 405), data
    left = type(make()).objects.filter(pk__in=ids[1:])
    assert ids[1:] == sorted(row.pk for row in left)


def test_jobs_that_cannot_be_acted_on_are_left_as_they_are(admin_client):
    """Running, ended, redriven, of an unknown task: a message, and no change."""
    running, ended = make_leased_job(task="no.such.task"), make_archived_job()
    before = [Job.objects.values().get(), ArchivedJob.objects.values().get()]

    for row in (running, ended):
        for page, act in (
            ("job", "retry"),
            ("deadletter", "redrive"),
            ("deadletter", "redrive-to"),
            ("deadletter", "set-aside"),
            ("deadletter", "purge"),
            ("job", "edit"),
            ("deadletter", "edit"),
        ):
            url = f"/admin/pgqueue/{page}/{row.pk}/{act}/"
            response = admin_client.post(url, FORM, follow=True)
            assert 200 == response.status_code
            assert [*response.context["messages"]] or response.context["form"].errors

    assert before == [Job.objects.values().get(), ArchivedJob.objects.values().get()]


def test_a_dead_letter_of_an_unknown_task_is_redriven(admin_client):
    """It waits for its deploy then, as every job of an unknown task."""
    row = make_dead_letter(task="no.such.task", reason="unknown_task")

    admin_client.post(f"/admin/pgqueue/deadletter/{row.pk}/redrive/")

    assert "no.such.task" == Job.objects.get(pk=row.pk).task
