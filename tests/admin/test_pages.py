"""
Every page, once over all nouns: who may open it, what it costs, that data stays text.

What a page says of its rows is tested beside its noun.
"""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from urllib.parse import quote as quote_url

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import path
from django.utils.html import escape

from django_pgqueue.models import Job
from tests.admin.acts import ALL, PAGES, snapshot, to_view
from tests.admin.rows import make_each
from tests.harness.factories import make_archived_job, make_job

pytestmark = pytest.mark.django_db

# A template, the end of an attribute in either quotes, and a script.
EVIL = "{{ 7|add:7 }}\"'></script><script>alert(1)</script>"

# What a page asks, whatever it shows; BEGIN and COMMIT are savepoints in a test.
STATEMENTS_MAX = 25
SAVEPOINT = re.compile("SAVEPOINT|RELEASE")

# What can be opened of a row beside its page and its history.
LOOKS = {
    "job": ["cancel", "edit"],
    "deadletter": ["edit", "redrive-to", "set-aside", "purge"],
    "queue": ["pause", "limit"],
    "lane": ["release", "capacity"],
    "schedule": ["run-now", "pause", "edit"],
    "topic": ["replay", "repartition", "publish"],
    "subscription": ["disable", "remove"],
    "consumergroup": ["pause", "read-on", "seek"],
    "workflow": ["cancel", "retry-dead"],
    "bulkact": ["stop"],
}
# Pages that belong to no row.
OTHERS = {
    "job": ["groups/", "all-retry/", "all-cancel/"],
    "deadletter": ["groups/", "all-redrive/", "all-set-aside/"],
    "taskhour": ["", "?period=7d"],
    "pipelinerun": ["run/", "run/?job=metrics"],
    "schedule": ["new/"],
}


def paths(keys):
    """Return the paths of the pages of these rows, by noun."""
    found = {}
    for noun, rows in keys.items():
        url = f"/admin/pgqueue/{noun}/"
        looks = ["change", "history", *LOOKS.get(noun, ())]
        found[noun] = [
            url,
            *(f"{url}{quote(key)}/{look}/" for key in rows for look in looks),
        ]
    for noun, others in OTHERS.items():
        url = f"/admin/pgqueue/{noun}/"
        found.setdefault(noun, []).extend(url + other for other in others)
    return found


def test_pages_show_data_as_text_and_ask_a_few_statements(admin_client):
    """Lists, rows, histories and forms of every noun, with an attack in each column."""
    keys = make_each(EVIL)
    wrong = {}
    for page in [page for each in paths(keys).values() for page in each]:
        with CaptureQueriesContext(connection) as queries:
            answer = admin_client.get(page, follow=True)
        html = answer.content.decode()
        asked = [q for q in queries if not SAVEPOINT.match(q["sql"])]
        told = [
            f"status {answer.status_code}" if answer.status_code != 200 else "",
            "markup" if "<script>alert" in html else "",
            "a link that runs" if 'href="javascript:' in html else "",
            f"{len(asked)} statements" if len(asked) > STATEMENTS_MAX else "",
        ]
        if any(told):
            wrong[page] = [each for each in told if each]
    assert {} == wrong
    for noun in keys:
        # As text: nothing was just left out.
        html = admin_client.get(f"/admin/pgqueue/{noun}/").content.decode()
        assert escape(EVIL[:40]) in html, noun


@pytest.mark.parametrize("field", ["q", "queue", "state", "before", "x"])
def test_an_address_is_text(admin_client, field):
    """A link that somebody sends runs nothing either."""
    answer = admin_client.get("/admin/pgqueue/job/", {field: EVIL}, follow=True)

    assert "<script>alert" not in answer.content.decode()


def test_what_people_type_is_text(admin_client):
    """In forms that are shown again, in messages, in histories and on the next page."""
    letters = make_each(EVIL)["deadletter"]
    url = f"/admin/pgqueue/deadletter/{letters[0]}"
    form = {"confirmed": "1", "queue": EVIL, "reason": EVIL, "args": EVIL}
    job = f"/admin/pgqueue/archivedjob/{letters[0]}"
    pages = [
        admin_client.post(f"{url}/redrive-to/", form),
        admin_client.post(f"{url}/edit/", form),
    ]
    admin_client.post(f"{url}/set-aside/", form)
    pages += [
        *(admin_client.get(f"{job}/{look}/") for look in ("change", "history")),
        admin_client.get("/admin/"),
    ]
    for page in pages:
        assert 200 == page.status_code
        assert "<script>alert" not in page.content.decode()
        assert escape(EVIL[:40]) in page.content.decode()


def test_each_noun_needs_its_permission_and_no_other(staff):
    """Its list, rows and histories, and its entry in the index."""
    keys = {noun: rows[:1] for noun, rows in make_each("x").items()}
    assert {*PAGES} == {*keys}
    for noun, (key,) in keys.items():
        url = f"/admin/pgqueue/{noun}/"
        pages = [url, f"{url}{key}/change/", f"{url}{key}/history/"]
        pages += [url + other for other in OTHERS.get(noun, ()) if other == "groups/"]
        without, alone = staff(*ALL - {f"view_{noun}"}), staff(*to_view(noun))

        assert {403} == {without.get(page).status_code for page in pages}, noun
        assert {200} == {alone.get(page).status_code for page in pages}, noun
        assert f'href="{url}"' in alone.get("/admin/").content.decode()
        assert f'href="{url}"' not in without.get("/admin/").content.decode()
    nobody = staff()
    for page in [page for each in paths(keys).values() for page in each]:
        assert 403 == nobody.get(page).status_code, page
    assert 404 == nobody.get("/admin/pgqueue/").status_code
    assert b"pgqueue" not in nobody.get("/admin/").content


def test_charts_need_the_permission_to_view_hours(staff, client):
    """An hour has no page of its own; who is not logged in is sent to the login."""
    url = "/admin/pgqueue/taskhour/"

    assert 403 == staff(*ALL - {"view_taskhour"}).get(url).status_code
    alone = staff("view_taskhour")
    assert 200 == alone.get(url).status_code
    assert 405 == alone.post(url).status_code
    assert client.get(url).url.startswith("/admin/login/")


def test_forms_of_django_are_closed(admin_client):
    """A superuser adds, changes and deletes no row either; other methods do nothing."""
    keys = make_each("x")
    before = snapshot()
    for noun in PAGES:
        url = f"/admin/pgqueue/{noun}/"
        row = f"{url}{keys[noun][0]}/"
        statuses = [
            admin_client.get(f"{url}add/").status_code,
            admin_client.post(f"{url}add/", {"task": "x", "name": "x"}).status_code,
            admin_client.post(f"{row}delete/", {"post": "yes"}).status_code,
            admin_client.post(f"{row}change/", {"task": "x"}).status_code,
            admin_client.put(f"{row}change/").status_code,
        ]
        assert [403, 403, 403, 405, 405] == statuses, noun
    assert before == snapshot()


# What nobody's browser made ----------------------------------------------------------

NOUNS = [*PAGES, "taskhour"]
QUERIES = Path(__file__).with_name("bad_queries.txt").read_text("ascii").split("\n")
LONG = [
    "q=" + "x" * 10_000,
    "q=" + "9" * 5_000,
    "queue=" + "x" * 64,
    "tag=" + "x" * 64,
    "task=" + "x" * 300,
    "key=" + "x" * 1_001,
    "id__in=" + ",".join(map(str, range(5_000))),
]
IDS = [
    *("abc", str(2**63), "%00", "0", "-1", str(2**63 - 1), str(2**70), "9" * 5_000),
    *("1;drop", "1.0", "1e3", "0b9e5c5e-4f58-4b0e-9d3b-7b8f5b7a9d10", "../../job"),
    *("_5F_", "%F0%9F%90%98"),
]
ALL_CASES = pytest.param(None, marks=pytest.mark.slow, id="all")
FORM = {
    "confirmed": "1",
    "queue": "x",
    "is_new": "on",
    "reason": "x",
    "args": "[]",
    "kwargs": "{}",
}


def acts_on(noun):
    """Return what can be done with a row of *noun*, and what nothing can."""
    page = admin.site.get_model_admin(apps.get_model("pgqueue", noun))
    found = [str(url.pattern).rstrip("/") for url in page.get_urls()]
    ours = {each.removeprefix("<path:object_id>/") for each in found} - {*found}
    return [*sorted(ours - {"history", "delete", "change"}), "no-such-act"]


@pytest.mark.parametrize("count", [10, ALL_CASES])
def test_lists_survive_any_query(admin_client, count):
    """200, 400, or a redirect to the plain list; the steps of a workflow are a list."""
    keys = make_each("x")
    lists = [f"/admin/pgqueue/{noun}/" for noun in NOUNS]
    lists.append(f"/admin/pgqueue/workflow/{keys['workflow'][0]}/change/")
    wrong = {}
    for number, query in enumerate([*QUERIES, *LONG][:count]):
        # Each list gets every third query.
        for url in lists[number % 3 :: 3]:
            answer = admin_client.get(f"{url}?{query}")
            if answer.status_code not in (200, 400) and answer.url != f"{url}?e=1":
                wrong[f"{url}?{query[:99]}"] = answer.status_code
    assert {} == wrong


@pytest.mark.parametrize("count", [3, ALL_CASES])
def test_rows_that_cannot_be_are_not_found(admin_client, count):
    """Back to the list with a message; no history, and nothing to act on."""
    make_job()
    wrong = {}
    for number, id_ in enumerate(IDS[:count]):
        for noun in NOUNS[number % 3 :: 3]:
            url = f"/admin/pgqueue/{noun}/{id_}/"
            looks = [
                admin_client.get(f"{url}{look}/") for look in ("change", "history")
            ]
            acts = [
                answer.status_code
                for act in acts_on(noun)
                for answer in (
                    admin_client.post(f"{url}{act}/", FORM),
                    admin_client.get(f"{url}{act}/"),
                )
            ]
            if {302} != {answer.status_code for answer in looks}:
                wrong[url[:99]] = looks
            if not {*acts} <= {200, 302, 404, 405}:
                wrong[url[:99]] = acts
    assert {} == wrong
    assert 1 == Job.objects.count()


def test_posts_to_lists_are_survived(admin_client):
    """302 with a message, 400, or 405 of charts, whatever is ticked and sent."""
    make_job()
    before = snapshot()
    for noun in NOUNS:
        posts = [
            *(
                {"action": act, "_selected_action": IDS, **FORM}
                for act in acts_on(noun)
            ),
            {"action": "__class__", "_selected_action": ["1"], **FORM},
            {"action": "\x00", "_selected_action": "\x00"},
            {"action": "x" * 5_000, "select_across": "1", "index": "x"},
        ]
        for data in posts:
            answer = admin_client.post(f"/admin/pgqueue/{noun}/", data)
            assert answer.status_code in (200, 302, 400, 405), (noun, data)
    assert before == snapshot()


def test_a_filter_that_cannot_be_read_shows_nothing(admin_client):
    """It must not look like one that all rows fulfil; what is no field is ignored."""
    job = make_job()
    url = "/admin/pgqueue/job/"

    unread = admin_client.get(url, {"state": "runing"})
    ignored = admin_client.get(f"{url}?id__lt=0&task__regex=((&o=1")

    assert [] == unread.context["cl"].result_list
    assert b"runing is not one of the available choices" in unread.content
    assert [job.pk] == [row.pk for row in ignored.context["cl"].result_list]


# Projects differ ---------------------------------------------------------------------


class Operations(admin.AdminSite):
    """A site beside, or instead of, Django's."""


def site_of(name, *nouns):
    """Return a site with the pages of these nouns, or of all."""
    site = Operations(name=name)
    for model, page in admin.site._registry.items():
        if model._meta.app_label == "pgqueue" and (
            not nouns or model._meta.model_name in nouns
        ):
            site.register(model, type(page))
    return site


SITES = {
    "ops": site_of("ops"),
    "few": site_of("few", "deadletter", "taskhour", "failure", "topic", "subscription"),
    "lonely": site_of(
        *("lonely", "deadletter", "pipelinerun", "schedule", "message"),
        *("consumergroup", "workflow"),
    ),
}

# Found as the URLs of the project: ROOT_URLCONF names this module.
urlpatterns = [path(f"{name}/", site.urls) for name, site in SITES.items()]


def places(html):
    """Return the first part of every local link of a page."""
    links = [part.split('"')[0] for part in unescape(html).split('="/')[1:]]
    return {link.split("/")[0] for link in links} - {"static", ""}


@pytest.mark.slow
def test_pages_work_on_other_sites_and_in_other_languages(admin_client, settings):
    """
    Each link stays on its site, and what would lead to pages that it lacks is left out.

    In Polish, with 1 234 567, and with USE_TZ = False: times of the project's zone.
    """
    settings.ROOT_URLCONF = __name__
    settings.USE_TZ = False
    settings.TIME_ZONE = "America/New_York"
    settings.LANGUAGE_CODE = "pl"
    settings.USE_THOUSAND_SEPARATOR = True
    found = paths(make_each("x"))
    for name, site in SITES.items():
        nouns = {model._meta.model_name for model in site._registry}
        for page in [page for noun in nouns for page in found[noun]]:
            here = page.replace("/admin/", f"/{name}/", 1)
            answer = admin_client.get(here, follow=True)
            assert 200 == answer.status_code, here
            assert {name} == places(answer.content.decode()), here
        index = admin_client.get(f"/{name}/").content.decode()
        assert f'href="/{name}/pgqueue/?"' in index

    make_job(
        id=1_234_567,
        run_after=timedelta(hours=5, minutes=1),
        errors=[{"kind": "error", "at": "2026-11-20T20:10:00+00:00"}],
        progress={"done": 0.5, "total": 1.25},
    )
    html = admin_client.get("/ops/pgqueue/job/").content.decode()
    assert 'value="1234567"' in html
    html = admin_client.get("/ops/pgqueue/job/1234567/change/").content.decode()
    assert "2026-11-20 15:10:00" in html
    assert '<progress value="0.5" max="1.25">' in html
    settings.LANGUAGE_CODE = "ar"
    assert 'dir="rtl"' in admin_client.get("/ops/pgqueue/").content.decode()


def test_acts_come_back_to_their_own_site(admin_client, settings):
    """To the list of that site; for all, where it lacks the page of bulk acts."""
    settings.ROOT_URLCONF = __name__
    rows = make_each("x")["deadletter"]

    response = admin_client.post(f"/ops/pgqueue/deadletter/{rows[1]}/redrive/")

    assert "/ops/pgqueue/deadletter/" == response.url
    assert Job.objects.filter(pk=rows[1]).exists()
    url = "/few/pgqueue/deadletter/all-redrive/"
    assert url not in admin_client.get("/few/pgqueue/deadletter/").content.decode()
    shown = dict(admin_client.get(url).context["hidden"])["shown"]
    sent = {"reason": "bank is back", "shown": shown, "typed": "1"}
    assert "/few/pgqueue/deadletter/" == admin_client.post(url, sent).url


def test_names_lead_to_their_pages(admin_client):
    """Whatever characters a name has; values of arguments make those of lanes."""
    for name in ("<i>", 'a"b', "a&b=c/ü?", "%41_"):
        make_each_named(name)
        for noun in ("queue", "lane"):
            url = f"/admin/pgqueue/{noun}/{quote_url(quote(name))}/"
            for look in ("change", "pause", "history"):
                answer = admin_client.get(f"{url}{look}/")
                assert 200 == answer.status_code, (noun, name, look)
            assert name == admin_client.get(f"{url}change/").context["original"].name
            html = admin_client.get(f"/admin/pgqueue/{noun}/").content.decode()
            assert f'href="{escape(url)}change/"' in html
        (row,) = (
            admin_client.get("/admin/pgqueue/job/", {"queue": name})
            .context["cl"]
            .result_list
        )
        assert name == row.queue


def make_each_named(name):
    """Make a queue, a lane and a job of this name."""
    apps.get_model("pgqueue", "queue").objects.create(name=name)
    make_job(queue=name, lane=name)
    make_archived_job(queue=name)
