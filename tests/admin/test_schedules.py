"""Schedules: when they are due, what came of it, and what people do with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages

from django_pgqueue.models import Job, Schedule, Tick
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_declared,
    make_job,
    make_schedule,
    make_tick,
)

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/schedule/"
HOUR = timedelta(hours=1)
NEW = {
    "name": "evening",
    "task": "tests.app.tasks.add",
    "args": '{"left": 1, "right": 2}',
    "expression": "0 18 * * *",
    "every": "",
    "tz": "Europe/Berlin",
    "catch_up": "one",
    "overlap": "skip",
    "jitter": "0s",
    "queue": "",
    "priority": "",
}


def texts(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def html_of(client, path=""):
    response = client.get(URL + path)
    assert 200 == response.status_code
    return unescape(response.content.decode())


def listed(client, query=""):
    return [row.name for row in client.get(URL + query).context["cl"].result_list]


def data_of(client, path):
    """Return what the form of *path* would send, unchanged."""
    form = client.get(URL + path).context["form"]
    return {
        name: "" if form[name].value() is None else form[name].value()
        for name in form.fields
    }


def errors_of(response):
    return {name: list(said) for name, said in response.context["form"].errors.items()}


# The list ----------------------------------------------------------------------------


def test_the_list_tells_when_schedules_are_due_and_how_they_went(admin_client):
    """By their own clock, with the state of the last job; from A to Z."""
    sold = make_archived_job()
    nightly = make_declared(
        name="b nightly",
        expression="0 3 * * *",
        next_tick=datetime(2126, 7, 1, 1, tzinfo=UTC),
        overridden_at=-HOUR,
    )
    make_tick(nightly, job_id=sold.pk, due_at=-2 * HOUR)
    make_tick(nightly, outcome="overlap", due_at=-3 * HOUR)
    make_schedule(
        name="a poll",
        every_seconds=15,
        paused_at=-HOUR,
        paused_by="ada",
        pause_reason="down",
    )

    html = html_of(admin_client)

    assert ["a poll", "b nightly"] == listed(admin_client)
    first, second = html.split("<tr>")[-2:]
    assert "every 15 s" in first
    assert "pgqueue-paused" in first
    assert "by ada: down" in first
    assert "0 3 * * * in Europe/Berlin" in second
    assert "2126-07-01 03:00 CEST" in second
    assert "changed here" in second
    assert f'href="/admin/pgqueue/archivedjob/{sold.pk}/change/"' in second
    assert "succeeded" in second
    assert "skipped" not in second


# The page of one ---------------------------------------------------------------------


def test_a_schedule_shows_what_came_of_its_ticks(admin_client):
    """Each with its job, how long that ran, what was missed, and who asked."""
    row = make_schedule()
    done = make_archived_job(started_at=-timedelta(seconds=42))
    dead = make_dead_letter()
    make_tick(row, job_id=done.pk, due_at=-4 * HOUR, ticked_at=-3 * HOUR, missed=7)
    make_tick(row, job_id=dead.pk, due_at=-2 * HOUR)
    make_tick(row, outcome="overlap", due_at=-HOUR)
    make_tick(row, job_id=999_999_999, due_at=-9 * HOUR)
    make_tick(row, job_id=make_job().pk, asked_by="ada")

    html = html_of(admin_client, f"{row.pk}/change/")
    ticks = html.split("Last ticks")[1].split("<tr>")[2:]

    assert ["ada" in tick for tick in ticks] == [True, False, False, False, False]
    assert "skipped: the one before was not done" in ticks[1]
    assert f"/admin/pgqueue/deadletter/{dead.pk}/change/" in ticks[2]
    assert "42 s" in ticks[3]
    assert ">1 h</td>" in ticks[3]
    assert ">7</td>" in ticks[3]
    assert "job 999999999, no longer kept" in ticks[4]


def test_what_was_changed_here_stands_beside_what_code_declares(admin_client, staff):
    """Arguments for those who may see them; no secret for anybody."""
    row = make_declared(
        {"expression": "0 3 * * *", "kwargs": {"region": "us", "token": "s3cret"}},
        expression="30 4 * * *",
        kwargs={"region": "eu", "token": "s3cret-2"},
        overridden_at=-HOUR,
        overridden_by="ada",
    )
    path = f"{row.pk}/change/"

    html = html_of(admin_client, path)
    other = html_of(staff("view_schedule"), path)

    drift = html.split("Declared by code")[1].split("</table>")[0]
    assert "0 3 * * *" in drift
    assert "30 4 * * *" in drift
    assert '"region": "us"' in drift
    assert "s3cret" not in html
    assert "30 4 * * *" in other.split("Declared by code")[1]
    assert '"region"' not in other
    assert "needs permission pgqueue.view_payload" in other


# Acts --------------------------------------------------------------------------------


def test_run_now_enqueues_a_job_and_names_it(admin_client):
    """Also of a paused schedule; its ticks go on as they were."""
    row = make_schedule(kwargs={"x": 1}, paused_at=-HOUR, next_tick=HOUR)

    response = admin_client.post(f"{URL}{row.pk}/run-now/", {"confirmed": "1"})

    job, tick = Job.objects.get(), Tick.objects.get()
    assert (row.task, {"x": 1}, row.pk) == (job.task, job.kwargs, job.schedule_id)
    assert (job.pk, "admin") == (tick.job_id, tick.asked_by)
    assert [f"1 enqueued: job {job.pk}."] == texts(response)
    assert f"Run now: job {job.pk}." == LogEntry.objects.get().change_message
    after = Schedule.objects.get()
    assert (row.next_tick, row.revision) == (after.next_tick, after.revision)


def test_what_code_declares_is_not_deleted(admin_client):
    """A user's schedule is, with its ticks; a withdrawn one too."""
    user, code = make_schedule(name="a"), make_declared(name="b")
    gone = make_declared(name="c", withdrawn_at=-HOUR)
    make_tick(user)
    keys = [user.pk, code.pk, gone.pk]

    response = admin_client.post(
        URL, {"action": "remove", "_selected_action": keys, "confirmed": 1}
    )

    assert ["b"] == list(Schedule.objects.values_list("name", flat=True))
    assert not Tick.objects.exists()
    assert ["2 deleted. 1 left, declared by code: pause instead."] == texts(response)
    assert 'remove/"' not in html_of(admin_client, f"{code.pk}/change/")


# New ---------------------------------------------------------------------------------


def test_a_schedule_is_made_after_a_preview(admin_client):
    """The preview stores nothing, and shows ticks."""
    shown = admin_client.post(f"{URL}new/", {**NEW, "preview": "1"})

    html = unescape(shown.content.decode())
    assert "0 18 * * * in Europe/Berlin" in html
    assert 5 == html.count(" 18:00 CE")
    assert not Schedule.objects.exists()

    made = admin_client.post(f"{URL}new/", {**NEW, "save": "1"})

    row = Schedule.objects.get()
    assert f"{URL}{row.pk}/change/" == made.url
    assert ("user", "admin", "tests.app.tasks.add", {"left": 1, "right": 2}, []) == (
        row.source,
        row.created_by,
        row.task,
        row.kwargs,
        row.args,
    )
    assert ("0 18 * * *", "Europe/Berlin", "one", None) == (
        row.expression,
        row.tz,
        row.catch_up,
        row.priority,
    )
    assert "Made, for the task tests.app.tasks.add." == (
        LogEntry.objects.get().change_message
    )


def test_a_schedule_of_the_pipeline_needs_the_permissions_of_its_runs(staff):
    """Otherwise anyone who may add schedules could export the archive."""
    sent = {
        **NEW,
        "task": "django_pgqueue.run_pipeline",
        "args": '["export"]',
        "kwargs": "{}",
        "save": "1",
    }
    adds = ("view_schedule", "add_schedule", "view_payload", "run_pipeline")

    assert 403 == staff(*adds).post(f"{URL}new/", sent).status_code
    assert not Schedule.objects.exists()
    made = staff(*adds, "view_archivedjob").post(f"{URL}new/", sent)
    assert 302 == made.status_code
    assert ["export"] == Schedule.objects.get().args


@pytest.mark.parametrize(
    "field, value, at, said",
    [
        ("task", "tests.app.tasks.ad", "task", "Did you mean 'tests.app.tasks.add'?"),
        ("args", "{'a': 1}", "args", "Expecting property name"),
        ("expression", "0 0 30 2 *", "expression", "is never due"),
        # Two that contradict each other are told at one of them.
        ("every", "5m", "expression", "either a cron expression or a period"),
        ("every", "soon", "every", "which is no duration"),
        ("tz", "Europe/Berln", "tz", "Did you mean 'Europe/Berlin'?"),
        ("catch_up", "all(0)", "catch_up", "N from 1 to 1,000"),
        ("catch_up", "all(5)", "overlap", "contradict each other"),
        ("jitter", "2d", "jitter", "at most a day"),
        ("queue", "a b", "queue", "queue='a b'"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(admin_client, field, value, at, said):
    """And nothing is stored."""
    response = admin_client.post(f"{URL}new/", {**NEW, field: value, "save": "1"})

    errors = errors_of(response)
    assert [at] == list(errors)
    assert said in errors[at][0]
    assert not Schedule.objects.exists()


# Edit --------------------------------------------------------------------------------


def test_a_users_schedule_is_edited(admin_client):
    """What is left alone stays, secrets too; the log names columns and no values."""
    row = make_schedule(
        kwargs={"note": "x", "token": "s3cret"}, jitter_seconds=600, priority=3
    )
    path = f"{row.pk}/edit/"
    data = data_of(admin_client, path)
    assert "s3cret" in data["args"]

    changed = data["args"].replace('"x"', '"y"')
    response = admin_client.post(
        URL + path,
        {**data, "args": changed, "expression": "0 5 * * *", "save": "1"},
    )

    after = Schedule.objects.get()
    assert ({"note": "y", "token": "s3cret"}, "0 5 * * *", 600, 3) == (
        after.kwargs,
        after.expression,
        after.jitter_seconds,
        after.priority,
    )
    assert (None, row.revision + 1) == (after.overridden_at, after.revision)
    assert ["The schedule was stored."] == texts(response)
    assert "Edited: kwargs, expression" == LogEntry.objects.get().change_message


def test_a_declared_schedule_that_is_changed_is_overridden(admin_client):
    """Code's own words stay beside it. Changed back by hand, it is so no longer."""
    row = make_declared(expression="0 3 * * *")
    path = f"{row.pk}/edit/"

    data = data_of(admin_client, path)
    admin_client.post(URL + path, {**data, "tz": "Asia/Tokyo", "save": "1"})
    changed = Schedule.objects.get()
    data = data_of(admin_client, path)
    admin_client.post(URL + path, {**data, "tz": "Europe/Berlin", "save": "1"})
    back = Schedule.objects.get()

    assert ("Asia/Tokyo", "admin", row.declared) == (
        changed.tz,
        changed.overridden_by,
        changed.declared,
    )
    assert changed.overridden_at is not None
    assert (None, None, row.declared) == (
        back.overridden_at,
        back.overridden_by,
        back.declared,
    )


def test_two_who_edit_a_schedule_do_not_overwrite_each_other(admin_client):
    """The slower one is told."""
    row = make_schedule()
    path = f"{row.pk}/edit/"
    slow = data_of(admin_client, path)
    admin_client.post(
        URL + path, {**data_of(admin_client, path), "tz": "UTC", "save": "1"}
    )

    response = admin_client.post(URL + path, {**slow, "queue": "x", "save": "1"})

    assert "Somebody has changed this schedule" in str(errors_of(response))
    after = Schedule.objects.get()
    assert ("UTC", None) == (after.tz, after.queue)


# Schedules that publish --------------------------------------------------------------

PUBLISHES = {
    **NEW,
    "task": "",
    "message": "cronjobs.nightly",
    "key": "k7",
    "args": '["full"]',
}


def test_a_schedule_that_publishes_is_made_shown_and_edited(admin_client):
    """What overlap says is no matter of it; its payload is any JSON."""
    admin_client.post(f"{URL}new/", {**PUBLISHES, "save": "1"})

    row = Schedule.objects.get()
    assert ("", "cronjobs.nightly", "k7", ["full"], "queue") == (
        row.task,
        row.message_name,
        row.message_key,
        row.message_payload,
        row.overlap,
    )
    assert "Made, for the message cronjobs.nightly." == (
        LogEntry.objects.get().change_message
    )
    html = html_of(admin_client)
    assert "publishes <span" in html or "publishes cronjobs.nightly" in html
    page = html_of(admin_client, f"{row.pk}/change/")
    assert "cronjobs.nightly" in page
    assert '["full"]' in page
    assert "Keyword arguments" not in page
    assert ["evening"] == listed(admin_client, "?task=JOBS.night")

    edit = data_of(admin_client, f"{row.pk}/edit/")
    assert ("cronjobs.nightly", "k7", '["full"]') == (
        edit["message"],
        edit["key"],
        edit["args"],
    )
    admin_client.post(f"{URL}{row.pk}/edit/", {**edit, "args": "null", "save": "1"})
    row.refresh_from_db()
    assert row.message_payload is None
    assert "null" == data_of(admin_client, f"{row.pk}/edit/")["args"]


def test_who_may_not_see_payloads_sees_what_is_published_and_not_its_key(
    admin_client, staff
):
    """Nor what was changed of it here."""
    row = make_declared(
        {"message_key": "their-key", "message_payload": {"a": "theirs"}},
        task="",
        message_name="cronjobs.nightly",
        message_key="our-key",
        message_payload={"a": "ours"},
        overridden_at=-HOUR,
    )
    make_tick(row, outcome="published", message_id=77)
    readers = (staff("view_schedule"), admin_client)
    hidden, shown = (html_of(each, f"{row.pk}/change/") for each in readers)
    assert "message 77" in hidden
    for text in ("their-key", "our-key", "theirs", "ours"):
        assert text in shown
        assert text not in hidden
