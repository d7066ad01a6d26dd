"""What tasks and other people write is text on a page, never markup."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.db import connection
from django.utils import timezone
from django.utils.html import escape

from django_pgqueue.models import Lane, Queue
from django_pgqueue.queues import workers
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_declared,
    make_failure,
    make_job,
    make_live_run,
    make_run,
    make_schedule,
    make_task_hour,
    make_tick,
    make_workflow,
)
from tests.log.rows import (
    make_group,
    make_message,
    make_position,
    make_subscription,
    make_topic,
)

pytestmark = pytest.mark.django_db

# A template, and what ends an attribute in either quotes, and a script; a link that
# runs, and control characters. The version of a worker takes 50 characters.
PAYLOADS = [
    "{{ 7|add:7 }}\"'></script><script>alert(1)</script>",
    "javascript:alert(1)//\x1b[31m\u202e<svg/on=x><i>evil</i>\r\n",
]

TAGS = ("<script>alert", "<svg/on", "<i>")

FORMS = {
    "job": ("edit", "cancel"),
    "deadletter": ("edit", "redrive-to", "set-aside", "purge"),
}


RETRYING = {"visible_at": timedelta(hours=1), "attempt": 1, "deliveries": 1}


def everywhere(text, **columns):
    """Return columns of a job with *text* in each that takes text."""
    entry = dict.fromkeys(
        (
            *("kind", "type", "message", "traceback", "worker", "by", "at"),
            *("attempt", "delivery", "ran_seconds", text),
        ),
        text,
    )
    return {
        "queue": text[:63],
        "task": text,
        "args": [text],
        "kwargs": {text: text},
        "headers": {text: text, "tags": [text]},
        "progress": text,
        "errors": [entry, text],
        "lane": text,
        "dedup_key": text,
        "accumulate_key": text,
        **columns,
    }


@pytest.mark.parametrize("text", PAYLOADS)
def test_no_column_of_a_job_becomes_markup(admin_client, text):
    """List, detail and history of all three tables, with the text in every column."""
    worker = {"worker": text}
    # A leased job is not parked, so the one with a lane stands by itself.
    rows = [
        ("job", make_job(**everywhere(text))),
        (
            "job",
            make_job(
                **everywhere(text, lane=None, dedup_key=None),
                leased_by=text,
                visible_at=timedelta(minutes=1),
            ),
        ),
        (
            "archivedjob",
            make_archived_job(**everywhere(text, result={text: text}), **worker),
        ),
        ("deadletter", make_dead_letter(**everywhere(text), **worker)),
    ]

    for page, row in rows:
        url = f"/admin/pgqueue/{page}/"
        for path in (url, f"{url}{row.pk}/change/", f"{url}{row.pk}/history/"):
            assert_is_text(admin_client.get(path), text)
        for act in FORMS.get(page, ()):
            response = admin_client.get(f"{url}{row.pk}/{act}/")
            if response.status_code == 200:
                assert_is_text(response, text)
    make_job(**everywhere(text, lane=None, dedup_key=None), **RETRYING)
    for page in ("deadletter", "job"):
        assert_is_text(admin_client.get(f"/admin/pgqueue/{page}/groups/"), text)


@pytest.mark.parametrize("text", PAYLOADS)
def test_no_name_of_a_lane_becomes_markup(admin_client, text):
    """Arguments make it; and who has paused it, and why."""
    make_job(**everywhere(text))
    Lane.objects.create(
        name=text, paused_by=text, pause_reason=text, paused_at=timezone.now()
    )

    response = admin_client.get("/admin/pgqueue/lane/")
    (link,) = re.findall('class="field-title.*?href="(.*?)"', response.content.decode())
    assert_is_text(response, text)
    for look in ("change", "release", "capacity"):
        there = unescape(link).replace("/change/", f"/{look}/")
        assert_is_text(admin_client.get(there), text)


@pytest.mark.parametrize("text", PAYLOADS)
def test_no_name_of_a_queue_or_worker_becomes_markup(admin_client, text):
    """Queues and workers are named by whoever starts them."""
    Queue.objects.create(name=text, paused_by=text, pause_reason=text)
    with connection.cursor() as cursor:
        workers.register(
            cursor,
            name=text,
            hostname=text,
            pid=1,
            queues=[text],
            threads=1,
            version=text,
        )

    for page in ("queue", "worker"):
        response = admin_client.get(f"/admin/pgqueue/{page}/")
        (link,) = re.findall(
            'class="field-title.*?href="(.*?)"', response.content.decode()
        )
        assert_is_text(response, text)
        assert_is_text(admin_client.get(unescape(link)), text)


@pytest.mark.parametrize("text", PAYLOADS)
def test_nothing_that_the_pipeline_found_becomes_markup(admin_client, text):
    """Names and texts of hours, failures and runs: in charts and tables too."""
    make_task_hour(1, queue=text, task=text, failed=3, dead=1)
    failure = make_failure(
        {"type": "x"},
        error_class=text,
        message=text,
        place=text,
        tasks=[text],
        sample_message=text,
        sample_traceback=text,
    )
    letter = make_dead_letter(errors=[{"kind": "error", "type": "x"}])
    runs = [
        make(
            job=text,
            options={text: text},
            asked_by=text,
            hostname=text,
            error=text,
            progress={"phase": text, "tasks": 2, "tasks_done": 1},
            ui_url=text,
            cancel_requested_by=text,
        )
        for make in (make_live_run, make_run)
    ]
    admin = "/admin/pgqueue"

    for path in (
        f"{admin}/taskhour/",
        f"{admin}/failure/",
        f"{admin}/failure/{failure.pk}/change/",
        f"{admin}/failure/{failure.pk}/history/",
        f"{admin}/deadletter/?kind={failure.pk}",
        f"{admin}/deadletter/{letter.pk}/change/",
        f"{admin}/pipelinerun/",
        *(f"{admin}/pipelinerun/{run.pk}/change/" for run in runs),
        f"{admin}/pipelinerun/{runs[0].pk}/stop/",
        f"{admin}/pipelinerun/{runs[1].pk}/run-again/",
        f"{admin}/pipelinerun/{runs[1].pk}/history/",
    ):
        assert_is_text(admin_client.get(path), text)
    admin_client.post(f"{admin}/pipelinerun/{runs[1].pk}/run-again/", {"confirmed": 1})
    assert_is_text(admin_client.get(f"{admin}/pipelinerun/"), text)


@pytest.mark.parametrize("text", PAYLOADS)
def test_nothing_of_a_schedule_becomes_markup(admin_client, text):
    """List, page, history and forms, with the text in every column that takes it."""
    columns = {
        "task": text,
        "kwargs": {text: text},
        "queue": text[:63],
        "expression": text,
        "tz": text,
        "paused_at": timedelta(0),
        "paused_by": text,
        "pause_reason": text,
        "created_by": text,
        "error": text,
    }
    rows = [
        make_schedule(name=text, **columns),
        make_declared(
            {"kwargs": {text: [text]}, "task": f"{text}2", "tz": f"{text}2"},
            name=f"{text}2",
            overridden_at=timedelta(0),
            overridden_by=text,
            withdrawn_at=timedelta(0),
            **columns,
        ),
    ]
    for row in rows:
        make_tick(row, asked_by=text, job_id=1)
    admin = "/admin/pgqueue/schedule"

    assert_is_text(admin_client.get(f"{admin}/"), text)
    for row in rows:
        looks = ("change", "history", "run-now", "pause", "remove", "edit")
        for look in looks:
            assert_is_text(admin_client.get(f"{admin}/{row.pk}/{look}/"), text)
    assert_is_text(admin_client.get(f"{admin}/{rows[1].pk}/reset/"), text)
    form = dict.fromkeys(
        ("name", "task", "args", "expression", "every", "tz", "queue", "jitter"), text
    )
    for path in ("new", f"{rows[0].pk}/edit"):
        for submit in ("save", "preview"):
            response = admin_client.post(f"{admin}/{path}/", {**form, submit: "1"})
            assert_is_text(response, text)


@pytest.mark.parametrize("text", PAYLOADS)
def test_nothing_of_a_topic_or_its_listeners_becomes_markup(admin_client, text):
    """Lists, pages and forms, with the text in every column that takes it."""
    short, ago = text[:63], timedelta(0)
    topic = make_topic(
        short,
        schema=text,
        declared={"partitions": text, "retain_seconds": text},
    )
    message = make_message(
        text, {text: text}, key=text, headers={text: text}, topic_id=topic.pk
    )
    listener = {"task": text, "queue": short, "payload_filter": {text: text}}
    subscription = make_subscription(
        "orders",
        **listener,
        start=text[:40],
        disabled_at=ago,
        disabled_by=text,
        disabled_reason=text,
    )
    type(subscription).objects.update(pattern=text, topic=short)
    group = make_group(
        short,
        text,
        **listener,
        positions=1,
        start=text[:40],
        paused_at=ago,
        paused_by=text,
        pause_reason=text,
    )
    entry = dict.fromkeys(("kind", "type", "message", "traceback", "at", text), text)
    halted = {"errors": [entry, text], "halted_at": ago, "halted_for": text[:9]}
    make_position(group, 0, **halted, leased_by=text, leased_until=ago)

    for page, row, looks in (
        ("topic", topic, ("replay",)),
        ("message", message, ()),
        ("subscription", subscription, ("disable", "remove")),
        ("consumergroup", group, ("pause", "read-on", "seek")),
    ):
        url = f"/admin/pgqueue/{page}/"
        assert_is_text(admin_client.get(url), text)
        for look in ("change", "history", *looks):
            assert_is_text(admin_client.get(f"{url}{row.pk}/{look}/"), text)
    url = f"/admin/pgqueue/consumergroup/{group.pk}/seek/"
    typed = {"way": text, "time": text, "message": text, "typed": text, "seek": "1"}
    assert_is_text(admin_client.post(url, typed), text)


@pytest.mark.parametrize("text", PAYLOADS)
def test_nothing_of_a_workflow_becomes_markup(admin_client, text):
    """List, picture, table of steps and forms, with the text in every column."""
    steps = [
        {
            "name": text,
            "kind": text[:12],
            "task": text,
            "state": state,
            "after": after,
            "job": {"args": [text], "kwargs": {text: text}},
            "result": {text: text},
            "error": {"type": text, "reason": text, "message": text},
        }
        for state, after in (("dead", ()), (text[:9], (0,)), ("waiting", (0, 1)))
    ]
    # Enough of them to be folded.
    many = [{**steps[0], "state": "succeeded", "after": (0,)} for _ in range(20)]
    row = make_workflow([*steps, *many], name=text, key=text, kind="canvas")
    url = "/admin/pgqueue/workflow/"

    assert_is_text(admin_client.get(url), text)
    for look in ("change", "history", "cancel", "retry-dead"):
        assert_is_text(admin_client.get(f"{url}{row.pk}/{look}/"), text)
    page = admin_client.get(f"{url}{row.pk}/change/", {"q": text, "state": text})
    assert page.status_code == 200
    assert b"<script>alert" not in page.content
    job = make_job(**everywhere(text), workflow_id=row.pk)
    assert_is_text(admin_client.get(f"/admin/pgqueue/job/{job.pk}/change/"), text)


@pytest.mark.parametrize("text", PAYLOADS)
def test_what_an_action_logs_and_tells_is_text(admin_client, text):
    """The message, the log entry and the recent actions of the index."""
    row = make_dead_letter(queue=text[:63], task=text)

    admin_client.post(f"/admin/pgqueue/deadletter/{row.pk}/redrive/")

    assert_is_text(admin_client.get("/admin/pgqueue/job/"), text)
    assert_is_text(admin_client.get(f"/admin/pgqueue/job/{row.pk}/history/"), text)
    assert_is_text(admin_client.get("/admin/"), text)


@pytest.mark.parametrize("text", PAYLOADS)
def test_what_people_type_is_text(admin_client, text):
    """Reasons, queues and arguments, in forms that are shown again and in the log."""
    letter, queue = make_dead_letter(), Queue.objects.create(name="mail")
    url = f"/admin/pgqueue/deadletter/{letter.pk}"
    form = {"confirmed": "1", "queue": text, "reason": text, "args": text}

    assert_is_text(admin_client.post(f"{url}/redrive-to/", form), text)
    assert_is_text(admin_client.post(f"{url}/edit/", form), text)
    admin_client.post("/admin/pgqueue/queue/mail/pause/", form)
    admin_client.post(f"{url}/set-aside/", form)

    for path in (
        f"queue/{queue.pk}/change/",
        f"queue/{queue.pk}/history/",
        f"archivedjob/{letter.pk}/change/",
        f"archivedjob/{letter.pk}/history/",
    ):
        assert_is_text(admin_client.get(f"/admin/pgqueue/{path}"), text)


@pytest.mark.parametrize("text", PAYLOADS)
@pytest.mark.parametrize("field", ["q", "queue", "tag", "state", "before", "x"])
def test_what_stands_in_the_url_is_text(admin_client, field, text):
    """A link that somebody sends cannot run anything either."""
    response = admin_client.get("/admin/pgqueue/job/", {field: text}, follow=True)

    html = response.content.decode()
    assert [] == [tag for tag in TAGS if tag in html]


def assert_is_text(response, text):
    html = response.content.decode()
    assert 200 == response.status_code
    assert [] == [tag for tag in TAGS if tag in html]
    # It is there, as text: nothing was just left out.
    assert escape(text.strip()[:40]) in html
