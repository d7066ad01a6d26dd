"""
Every page and every act, by every set of permissions that lacks one of what it needs.

Each request is crafted, as by somebody who knows the URL: that nothing is offered to
those who may not is another matter, and tested elsewhere.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.db import connection
from django.utils import timezone

from django_pgqueue import chain
from django_pgqueue.admin.edit import ArgumentsForm
from django_pgqueue.admin.payload import as_text
from django_pgqueue.models import (
    ArchivedJob,
    BulkAct,
    ConsumerGroup,
    DeadLetter,
    Failure,
    InboxEntry,
    Job,
    Lane,
    Message,
    PipelineRun,
    Position,
    Queue,
    Schedule,
    ScheduledMessage,
    Subscription,
    Tick,
    Topic,
    Worker,
    Workflow,
)
from django_pgqueue.testing import drain
from tests.admin.stored_mails import a_mail
from tests.app.workflow_tasks import fails_at, give
from tests.browser.pages import register
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_declared,
    make_failure,
    make_job,
    make_jobs,
    make_live_run,
    make_run,
    make_schedule,
    make_task_hour,
)
from tests.harness.factories import (
    make_workflow as stored_workflow,
)
from tests.log.rows import (
    make_group,
    make_inbox_entry,
    make_message,
    make_position,
    make_scheduled,
    make_subscription,
    make_topic,
)

pytestmark = pytest.mark.django_db

MODELS = {
    "job": Job,
    "archivedjob": ArchivedJob,
    "deadletter": DeadLetter,
    "queue": Queue,
    "lane": Lane,
    "worker": Worker,
    "pipelinerun": PipelineRun,
    "failure": Failure,
    "schedule": Schedule,
    "topic": Topic,
    "message": Message,
    "scheduledmessage": ScheduledMessage,
    "inboxentry": InboxEntry,
    "subscription": Subscription,
    "consumergroup": ConsumerGroup,
    "bulkact": BulkAct,
    "workflow": Workflow,
}

CONFIRMED = {
    "confirmed": "1",
    "reason": "no longer needed",
    "queue": "elsewhere",
    "is_new": "on",
    "jobs": "7",
    "payload": "7",
    "partitions": "8",
}

# What is done with one row: its page, its name, and the permissions beside "view".
ACTS = [
    ("job", "retry", {"retry"}),
    ("job", "cancel", {"cancel"}),
    ("deadletter", "redrive", {"retry"}),
    ("deadletter", "redrive-to", {"retry"}),
    ("deadletter", "set-aside", {"cancel"}),
    ("deadletter", "purge", {"purge"}),
    ("archivedjob", "resend", {"retry"}),
    ("workflow", "retry-dead", {"retry"}),
    ("workflow", "restart", {"retry"}),
    ("workflow", "cancel", {"cancel"}),
    ("workflow", "resolve", {"cancel"}),
    ("scheduledmessage", "cancel", {"cancel"}),
    ("queue", "pause", {"pause"}),
    ("queue", "resume", {"pause"}),
    ("queue", "limit", {"pause"}),
    ("queue", "send", {"send"}),
    *(("lane", name, {"pause"}) for name in ("pause", "resume", "capacity", "release")),
    ("lane", "weight", {"pause"}),
    ("pipelinerun", "run-again", {"run_pipeline"}),
    ("pipelinerun", "stop", {"run_pipeline"}),
    ("schedule", "run-now", {"run_schedule"}),
    ("schedule", "pause", {"pause"}),
    ("schedule", "resume", {"pause"}),
    ("schedule", "reset", {"change_schedule"}),
    ("schedule", "remove", {"delete_schedule"}),
    ("subscription", "disable", {"pause"}),
    ("subscription", "enable", {"pause"}),
    ("subscription", "remove", {"purge"}),
    ("consumergroup", "pause", {"pause"}),
    ("consumergroup", "resume", {"pause"}),
    ("consumergroup", "read-on", {"pause"}),
    ("topic", "repartition", {"seek"}),
    ("topic", "publish", {"send"}),
]
# What may be done again and again, so that each of the requests does it.
REPEATED = {
    "run-again": 3,
    "run-now": 3,
    "release": 3,
    "resend": 3,
    "restart": 3,
    "send": 3,
    "publish": 3,
}
# Those that ask first show their form on GET.
FORMS = (
    *("cancel", "redrive-to", "set-aside", "purge", "pause", "run-again", "stop"),
    *("run-now", "reset", "remove", "disable", "read-on", "capacity", "release"),
    *("limit", "weight", "resend", "retry-dead", "resolve", "restart", "send"),
    *("repartition", "publish"),
)

EDITS = [
    ("job", "save", {"edit", "view_payload"}),
    ("deadletter", "save", {"edit", "view_payload"}),
    ("deadletter", "redrive", {"edit", "view_payload", "retry"}),
]

ALL = {
    *(f"view_{page}" for page in MODELS),
    *("view_payload", "view_mail_body", "retry", "edit", "cancel", "purge", "pause"),
    *("send", "run_schedule", "seek", "run_pipeline"),
    # Charts without pages of rows, and what has no page.
    *("view_taskhour", "view_failurehour", "view_export", "view_erasure"),
    "view_dedupwindow",
    *("view_lane", "view_workflow"),
    *("view_tick", "add_schedule", "change_schedule", "delete_schedule"),
    *("view_position", "view_logday", "view_logstate", "view_clock"),
}


def to_view(page):
    """Return the permissions that open a page."""
    # Arguments make the names of lanes.
    return {f"view_{page}", *(["view_payload"] if page == "lane" else [])}


def make(page, name=""):
    """Return the key of a row with which the act *name* does something."""
    if page == "job":
        return make_job(run_after=timedelta(hours=1)).pk
    if page == "archivedjob":
        return make_archived_job(**a_mail()).pk
    if page == "deadletter":
        return make_dead_letter().pk
    if page == "worker":
        register("w-1")
        return "w-1"
    if page in ("bulkact", "failure"):
        return make_bulk_act().pk if page == "bulkact" else make_failure().pk
    if page == "pipelinerun":
        return (make_live_run() if name == "stop" else make_run()).pk
    if page == "schedule":
        if name == "reset":
            return make_declared(
                {"tz": "UTC"}, overridden_at=timedelta(0), overridden_by="ada"
            ).pk
        return make_schedule(paused_at=timedelta(0) if name == "resume" else None).pk
    if page in LISTENED:
        return make_listened(page, name)
    if page in ("lane", "workflow"):
        return (make_lane if page == "lane" else make_workflow)(name)
    kind = "pull" if name == "send" else "tasks"
    queue = Queue.objects.create(name="mail", kind=kind)
    if name == "resume":
        Queue.objects.update(paused_at=queue.created_at)
    return "mail"


# What topics have; those that are made otherwise depend on what is done with them.
LISTENED = {
    "topic": make_topic,
    "message": make_message,
    "scheduledmessage": make_scheduled,
    "inboxentry": make_inbox_entry,
    "subscription": None,
    "consumergroup": None,
}


def make_bulk_act():
    """Return one that waits."""
    return BulkAct.objects.create(verb="redrive", counted=1, top=1)


def make_workflow(name):
    """Return the id of one that runs, that has failed, or that needs a human."""
    if name == "resolve":
        undo = {"kind": "compensation", "state": "dead", "compensates": 0}
        saga = {"kind": "saga", "state": "compensating"}
        return stored_workflow([{"state": "succeeded"}, undo], **saga).pk
    result = chain(fails_at.s(1, 1), give.s()).delay()
    if name in ("retry-dead", "restart"):
        drain(raise_errors=False)
    return result.id


def make_lane(name):
    """Return the name of a lane in which jobs wait."""
    kind = {"lane_policy": "fair"} if name == "weight" else {"lane_capacity": 1}
    make_jobs(5, lane="a", **kind)
    if name == "resume":
        Lane.objects.create(name="a", paused_at=timezone.now())
    return "a"


def make_listened(page, name):
    """Return the key of a topic, a message, an entry of the inbox, or who listens."""
    if (made := LISTENED[page]) is not None:
        return made().pk
    ago = timedelta(0)
    if page == "subscription":
        is_user = name == "remove"
        return make_subscription(
            source="user" if is_user else "code",
            disabled_at=ago if name == "enable" else None,
        ).pk
    group = make_group(paused_at=ago if name == "resume" else None)
    make_position(group, 1, halted_at=ago, halted_for="error")
    return group.pk


# What an act could change.
CHANGED = (
    *(Job, ArchivedJob, DeadLetter, Queue, Lane, PipelineRun, Failure, Schedule, Tick),
    *(Subscription, Topic, ConsumerGroup, Position, ScheduledMessage, Workflow),
    LogEntry,
)


def snapshot():
    """Return the rows of CHANGED as text, by their table."""
    tables = [model._meta.db_table for model in CHANGED]
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ALL ".join(
                f"SELECT '{table}', array_agg(r::text ORDER BY r::text) FROM {table} r"
                for table in tables
            )
        )
        return dict(cursor.fetchall())


def answers(client, page, name, key):
    """Return the answers to each request that would do *name* with the row *key*."""
    url = f"/admin/pgqueue/{page}/"
    ticked = {"action": name, "_selected_action": [key]}
    if name in FORMS:
        yield client.get(f"{url}{key}/{name}/")
        yield client.post(url, ticked)
    yield client.post(f"{url}{key}/{name}/")
    yield client.post(f"{url}{key}/{name}/", CONFIRMED)
    yield client.post(url, {**ticked, **CONFIRMED})
    yield client.post(url, {**ticked, **CONFIRMED, "select_across": "1"})


def test_the_matrix_knows_every_permission():
    """One that is added needs a line here."""
    existing = Permission.objects.filter(content_type__app_label="pgqueue")

    assert ALL == set(existing.values_list("codename", flat=True))


@pytest.mark.parametrize("page", MODELS)
def test_pages_need_their_view_permission(staff, page):
    """With every other permission, neither list nor row nor history is shown."""
    key = make(page)
    url = f"/admin/pgqueue/{page}/"
    paths = (url, f"{url}{key}/change/", f"{url}{key}/history/")
    without, alone = staff(*ALL - {f"view_{page}"}), staff(*to_view(page))

    assert [403, 403, 403] == [without.get(path).status_code for path in paths]
    assert [200, 200, 200] == [alone.get(path).status_code for path in paths]
    assert page in alone.get("/admin/").content.decode()
    assert f"/pgqueue/{page}/" not in without.get("/admin/").content.decode()


def test_charts_need_the_view_permission_of_hours(staff):
    """They tell tasks and how they did; an hour has no page of its own."""
    key = make_task_hour().pk
    url = "/admin/pgqueue/taskhour/"
    paths = (url, f"{url}{key}/change/", f"{url}{key}/history/")
    without, alone = staff(*ALL - {"view_taskhour"}), staff("view_taskhour")

    assert [403, 403, 403] == [without.get(path).status_code for path in paths]
    assert [200, 302, 302] == [alone.get(path).status_code for path in paths]
    assert "/pgqueue/taskhour/" not in without.get("/admin/").content.decode()
    assert [405, 403] == [
        alone.post(path).status_code for path in (url, f"{url}{key}/delete/")
    ]


@pytest.mark.parametrize("lacking", ["view_pipelinerun", "run_pipeline"])
def test_a_new_run_needs_both_permissions(staff, lacking):
    """The choice, the form and what it sends; nothing is enqueued or logged."""
    url = "/admin/pgqueue/pipelinerun/run/"
    without = staff(*ALL - {lacking})
    both = staff("view_pipelinerun", "run_pipeline")
    before = snapshot()

    for path in (url, f"{url}?job=metrics"):
        assert 403 == without.get(path).status_code
        assert 403 == without.post(path).status_code
        assert 200 == both.get(path).status_code
    assert before == snapshot()
    assert 302 == both.post(f"{url}?job=metrics", {"option-keep": "9d"}).status_code
    assert before != snapshot()


def test_a_new_run_is_refused_without_a_token(staff):
    """Another site's form has none."""
    client = staff(*ALL, enforce_csrf_checks=True)

    url = "/admin/pgqueue/pipelinerun/run/?job=metrics"
    assert 403 == client.post(url).status_code
    assert not Job.objects.exists()


@pytest.mark.parametrize("page", ["deadletter", "job"])
def test_groups_need_the_view_permission_of_their_list(staff, page):
    """They tell tasks and errors."""
    make(page)
    url = f"/admin/pgqueue/{page}/groups/"

    assert 403 == staff(*ALL - {f"view_{page}"}).get(url).status_code
    assert 200 == staff(f"view_{page}").get(url).status_code


@pytest.mark.parametrize("page, name, needed", ACTS)
def test_acts_need_each_of_their_permissions(staff, page, name, needed):
    """
    With all permissions but one of those, nothing is done, asked or logged.

    Nor is it for another site's form, which has no token; or for a GET, whatever its
    parameters say, which shows the form or is refused.
    """
    key = make(page, name)
    url = f"/admin/pgqueue/{page}/"
    before = snapshot()

    for lacking in {*to_view(page), *needed}:
        client = staff(*ALL - {lacking})
        assert {403} == {
            answer.status_code for answer in answers(client, page, name, key)
        }, lacking
        assert before == snapshot()
    data = {"action": name, "_selected_action": [key], **CONFIRMED}
    strict = staff(*ALL, enforce_csrf_checks=True)
    for path in (url, f"{url}{key}/{name}/"):
        assert 403 == strict.post(path, data).status_code
    client = staff(*to_view(page), *needed)
    assert 200 == client.get(url, data).status_code
    status = client.get(f"{url}{key}/{name}/", CONFIRMED).status_code
    assert (200 if name in FORMS else 405) == status
    assert before == snapshot()
    done = [answer.status_code for answer in answers(client, page, name, key)]
    assert {200, 302} >= set(done)
    assert before != snapshot()
    assert REPEATED.get(name, 1) == LogEntry.objects.count()


@pytest.mark.parametrize("page, name, needed", ACTS)
def test_buttons_are_offered_to_those_who_may(staff, page, name, needed):
    """On the page of a row, to nobody else."""
    key = make(page, name)
    url = f"/admin/pgqueue/{page}/{key}"
    offered, hidden = staff(*to_view(page), *needed), staff(*ALL - needed)

    for client, is_offered in ((offered, True), (hidden, False)):
        html = client.get(f"{url}/change/").content.decode()
        assert is_offered == (f'"{url}/{name}/"' in html)


@pytest.mark.parametrize("page", dict.fromkeys(page for page, _, _ in ACTS))
def test_menus_have_what_their_user_may_do(staff, page):
    """All of it that is done on the page of the list, and nothing else."""
    make(page)
    acts = {name: needed for each, name, needed in ACTS if each == page}

    for some in {frozenset(needed) for needed in acts.values()}:
        for has in ({*to_view(page), *some}, ALL - some):
            form = staff(*has).get(f"/admin/pgqueue/{page}/").context["action_form"]
            choices = form.fields["action"].choices if form else []
            told = {name for name, _ in choices if name}
            assert {name for name in acts if acts[name] <= has} == told


@pytest.mark.parametrize("page, submit, needed", EDITS)
def test_edits_need_each_of_their_permissions(staff, page, submit, needed):
    """The form shows arguments, so it needs view_payload besides edit."""
    key = make(page)
    url = f"/admin/pgqueue/{page}/{key}/edit/"
    rows = MODELS[page].objects.annotate(
        args_text=as_text("args"), kwargs_text=as_text("kwargs")
    )
    seen = ArgumentsForm(rows.get(pk=key)).initial["seen"]
    data = {"args": "[1]", "kwargs": "{}", "seen": seen, submit: "1"}
    before = snapshot()

    for lacking in {f"view_{page}", *needed}:
        client = staff(*ALL - {lacking})
        assert 403 == client.post(url, data).status_code, lacking
        if lacking != "retry":
            assert 403 == client.get(url).status_code, lacking
        assert before == snapshot()
    client = staff(f"view_{page}", *needed)
    assert 200 == client.get(url).status_code
    assert 302 == client.post(url, data).status_code
    assert before != snapshot()


SCHEDULE = {
    "name": "evening",
    "task": "tests.app.tasks.noop",
    "args": "{}",
    "expression": "0 18 * * *",
    "every": "",
    "tz": "UTC",
    "catch_up": "one",
    "overlap": "skip",
    "jitter": "0s",
    "queue": "",
    "priority": "",
    "save": "1",
}


@pytest.mark.parametrize(
    "look, needed",
    [
        ("new", {"add_schedule"}),
        ("{key}/edit", {"change_schedule", "view_payload"}),
    ],
)
def test_forms_of_schedules_need_each_of_their_permissions(staff, look, needed):
    """That of a new one, and that of one that is changed: it shows arguments."""
    key = make("schedule")
    url = f"/admin/pgqueue/schedule/{look.format(key=key)}/"
    data = {**SCHEDULE, "revision": "0"}
    before = snapshot()

    for lacking in {"view_schedule", *needed}:
        client = staff(*ALL - {lacking})
        assert 403 == client.get(url).status_code, lacking
        assert 403 == client.post(url, data).status_code, lacking
        assert before == snapshot()
    client = staff("view_schedule", *needed)
    assert 200 == client.get(url).status_code
    assert 302 == client.post(url, data).status_code
    assert before != snapshot()
    assert 1 == LogEntry.objects.count()
    strict = staff(*ALL, enforce_csrf_checks=True)
    before = snapshot()
    assert 403 == strict.post(url, {**data, "name": "another"}).status_code
    assert before == snapshot()


def test_forms_of_schedules_are_offered_to_those_who_may(staff):
    """The link to a new one, the button of one."""
    key = make("schedule")
    url = "/admin/pgqueue/schedule/"
    may = {"add_schedule", "change_schedule", "view_payload"}

    for client, is_offered in (
        (staff("view_schedule", *may), True),
        (staff(*ALL - {"add_schedule", "change_schedule"}), False),
    ):
        assert is_offered == (f"{url}new/" in client.get(url).content.decode())
        html = client.get(f"{url}{key}/change/").content.decode()
        assert is_offered == (f"{url}{key}/edit/" in html)


def test_a_seek_needs_each_of_its_permissions(staff):
    """The form, what it says would happen, and what it does; and Django's token."""
    key = make("consumergroup")
    make_message(partition=3)
    url = f"/admin/pgqueue/consumergroup/{key}/seek/"
    data = {"way": "latest", "typed": "orders/stats", "seek": "1"}
    before = snapshot()

    for lacking in ("view_consumergroup", "seek"):
        client = staff(*ALL - {lacking})
        assert 403 == client.get(url).status_code, lacking
        assert 403 == client.post(url, data).status_code, lacking
        assert 403 == client.post(url, {"way": "latest"}).status_code, lacking
    hidden = staff(*ALL - {"seek"}).get(url.replace("seek", "change"))
    assert url not in hidden.content.decode()
    assert 403 == staff(*ALL, enforce_csrf_checks=True).post(url, data).status_code
    client = staff("view_consumergroup", "seek")
    assert url in client.get(url.replace("seek", "change")).content.decode()
    assert 200 == client.get(url, data).status_code
    assert 200 == client.post(url, {"way": "latest"}).status_code
    assert 405 == client.put(url, data).status_code
    assert before == snapshot()
    assert 302 == client.post(url, data).status_code
    assert before != snapshot()
    assert 1 == LogEntry.objects.count()


def test_a_replay_needs_each_of_its_permissions(staff):
    """The form, the count, and what it does; and Django's token."""
    key = make("topic")
    name = Topic.objects.get(pk=key).name
    make_subscription(pattern=name, topic=name, queue="mail", task="shop.mail")
    url = f"/admin/pgqueue/topic/{key}/replay/"
    into = f"subscription:mail/{name}/shop.mail"
    data = {"to": into, "typed": name, "replay": "1"}

    for lacking in ("view_topic", "seek"):
        client = staff(*ALL - {lacking})
        assert 403 == client.get(url).status_code, lacking
        assert 403 == client.post(url, data).status_code, lacking
    assert 403 == staff(*ALL, enforce_csrf_checks=True).post(url, data).status_code
    hidden = staff(*ALL - {"seek"}).get(url.replace("replay", "change"))
    assert url not in hidden.content.decode()
    client = staff("view_topic", "seek")
    assert url in client.get(url.replace("replay", "change")).content.decode()
    assert 200 == client.post(url, {"to": into, "preview": "1"}).status_code
    assert 200 == client.post(url, {**data, "typed": "x"}).status_code
    assert 0 == BulkAct.objects.count()
    assert 302 == client.post(url, data).status_code
    assert 1 == BulkAct.objects.count() == LogEntry.objects.count()


def test_staff_without_permission_sees_nothing_at_all(staff):
    """No index, no list, no row, no history, no act, no page of the app."""
    keys = {page: make(page) for page in MODELS}
    client = staff()
    paths = [
        "/admin/pgqueue/deadletter/groups/",
        "/admin/pgqueue/job/groups/",
        "/admin/pgqueue/taskhour/",
    ]
    paths += ["/admin/pgqueue/pipelinerun/run/", "/admin/pgqueue/schedule/new/"]
    for page, key in keys.items():
        url = f"/admin/pgqueue/{page}/"
        paths += [url, *(f"{url}{key}/{look}/" for look in ("change", "history"))]
        paths += [f"{url}{key}/{name}/" for p, name, _ in ACTS if p == page]
        has_edit = page in ("job", "deadletter", "schedule")
        paths += [f"{url}{key}/edit/"] if has_edit else []
        paths += [f"{url}{key}/seek/"] if page == "consumergroup" else []
        paths += [f"{url}{key}/replay/"] if page == "topic" else []

    assert {403} == {client.get(path).status_code for path in paths}
    assert 404 == client.get("/admin/pgqueue/").status_code
    assert b"pgqueue" not in client.get("/admin/").content


@pytest.mark.parametrize("page", MODELS)
def test_forms_of_django_are_closed(admin_client, page):
    """Not even a superuser adds, changes or deletes by them."""
    key = make(page)
    url = f"/admin/pgqueue/{page}/"
    before = snapshot()

    statuses = [
        admin_client.get(f"{url}add/").status_code,
        admin_client.post(f"{url}add/", {"task": "x", "name": "x"}).status_code,
        admin_client.get(f"{url}{key}/delete/").status_code,
        admin_client.post(f"{url}{key}/delete/", {"post": "yes"}).status_code,
        admin_client.post(f"{url}{key}/change/", {"task": "x"}).status_code,
    ]

    assert [403, 403, 403, 403, 405] == statuses
    assert before == snapshot()
