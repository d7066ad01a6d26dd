"""Edit: what is checked, what stays as it is, and who comes second."""

from __future__ import annotations

import json
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.db import connection, connections

from django_pgqueue.admin import edit as edits
from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.tasks.declare import task
from tests.harness.factories import (
    make_dead_letter,
    make_job,
)

pytestmark = pytest.mark.django_db

JOBS = "/admin/pgqueue/job/"
DEAD = "/admin/pgqueue/deadletter/"


@task(name="tests.admin.charge")
def charge(order_id: int, api_token: str = "", *, amount: str = "0") -> None:
    """A task with a secret among its positional arguments."""


@task(name="tests.admin.step", group="customer")
def step(customer: str, number: int) -> None:
    """A task whose jobs wait for others of their customer."""


def make_charge(**columns):
    return make_dead_letter(task="tests.admin.charge", **columns)


def texts(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def open_form(client, row, page=DEAD):
    """Return what the browser would send back."""
    response = client.get(f"{page}{row.pk}/edit/")
    assert 200 == response.status_code
    form = response.context["form"]
    return {name: form.initial[name] for name in form.fields}


def send(client, row, page=DEAD, **data):
    return client.post(f"{page}{row.pk}/edit/", data)


def problems(response):
    """Return what the form says, by field."""
    assert 200 == response.status_code
    return {k: " ".join(v) for k, v in response.context["form"].errors.items()}


# What is stored ----------------------------------------------------------------------


@pytest.mark.parametrize("nested", ["%s", '{"deep": [[%s]]}'])
@pytest.mark.parametrize("page", [DEAD, JOBS])
def test_an_edit_refers_to_rows_that_the_user_may_view(staff, page, nested):
    """Wherever the reference stands, and whether or not there is such a row. What was
    there before may stay."""
    user = User.objects.create_user("eve")
    refers = {
        key: json.dumps(
            {"__pgqueue__": "model", "value": "auth.user", "pk": key, "db": "default"}
        )
        for key in (user.pk, 0)
    }
    columns = {"args": [1], "kwargs": {"amount": json.loads(refers[user.pk])}}
    row = (make_job if page == JOBS else make_dead_letter)(
        task="tests.admin.charge", **columns
    )
    client = staff("view_job", "view_deadletter", "view_payload", "edit")
    data = open_form(client, row, page)
    told = "It refers to a row of auth.user, which you may not view."

    for key, reference in refers.items():
        given = {**data, "args": f"[{nested % reference}]"}
        assert {"args": told} == problems(send(client, row, page, **given)), key
    stays = send(client, row, page, **{**data, "args": "[7]"})
    assert 302 == stays.status_code
    row.refresh_from_db()
    assert ([7], columns["kwargs"]) == (row.args, row.kwargs)

    editor = User.objects.get(username__startswith="staff")
    editor.user_permissions.add(Permission.objects.get(codename="view_user"))
    given = {**open_form(client, row, page), "args": f"[{nested % refers[user.pk]}]"}
    assert 302 == send(client, row, page, **given).status_code
    row.refresh_from_db()
    assert str(user.pk) in json.dumps(row.args)


def test_a_dead_letter_is_edited_and_redriven_in_one_step(staff):
    """With the new arguments, back in its queue, from attempt 1 on."""
    row = make_charge(args=[1], kwargs={"amount": "1"}, queue="mail")
    client = staff("view_deadletter", "view_payload", "edit", "retry")
    data = open_form(client, row)

    response = send(client, row, **{**data, "args": "[2]"}, redrive="1")

    assert DEAD == response.url
    job = Job.objects.get(pk=row.pk)
    assert ([2], {"amount": "1"}, "mail", 0) == (
        job.args,
        job.kwargs,
        job.queue,
        job.attempt,
    )
    assert "1" == str(job.headers["pgqueue.edits"])
    assert ["1 redriven.", "The arguments were stored."] == texts(response)


def test_a_waiting_job_moves_to_the_lane_of_its_new_arguments(admin_client):
    """And what says no lane is refused at its field, with the reason."""
    name = "tests.admin.step"
    row = make_job(task=name, args=["a", 1], lane=f"{name}:a")
    data = open_form(admin_client, row, JOBS)

    refused = send(admin_client, row, JOBS, **{**data, "args": "[1.5, 1]"})
    assert "customer is 1.5, a float; group= needs" in str(problems(refused))
    assert ["a", 1] == Job.objects.get(pk=row.pk).args

    send(admin_client, row, JOBS, **{**data, "args": '["b", 1]'})
    edited = Job.objects.get(pk=row.pk)
    assert (["b", 1], f"{name}:b", None) == (
        edited.args,
        edited.lane,
        edited.visible_at,
    )


def test_what_was_not_edited_stays_to_the_digit(admin_client):
    """1.10 is no 1.1 in jsonb; Python would make it one."""
    row = make_dead_letter(task="no.such.task")
    update(row, args="[1.10, 0.1000000000000000055511151231257827]", kwargs="{}")
    data = open_form(admin_client, row)

    send(admin_client, row, **{**data, "kwargs": '{"amount": "3"}'})

    assert '{"amount": "3"}' == stored(row)[1]
    assert "[1.10, 0.1000000000000000055511151231257827]" == stored(row)[0]


def test_an_edit_is_logged_without_values(admin_client):
    """Who, and the names of what was changed; history is read without view_payload."""
    row = make_charge(args=[1, "old-s3cret"], kwargs={"amount": "old-amount"})
    data = open_form(admin_client, row)

    send(
        admin_client,
        row,
        args='[2, "new-s3cret"]',
        kwargs='{"amount": "new-amount"}',
        seen=data["seen"],
    )

    entry = LogEntry.objects.get()
    assert "Edited: args[0], args[1], amount" == entry.get_change_message()
    assert f"tests.admin.charge #{row.pk}" == entry.object_repr
    noted = DeadLetter.objects.get(pk=row.pk).errors[-1]
    assert ("edited", "admin") == (noted["kind"], noted["by"])
    assert "s3cret" not in json.dumps(noted)


# What is refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "args, kwargs, field, said",
    [
        ("[", "{}", "args", "Expecting value"),
        ("{}", "{}", "args", "must be a JSON array"),
        ("[1]", "[]", "kwargs", "must be a JSON object"),
        ("", "{}", "args", "required"),
        ("[NaN]", "{}", "args", "NaN is no number"),
        ("[1]", '{"amount": -Infinity}', "kwargs", "no number"),
        ("[1]", '{"amount": 1, "amount": 2}', "kwargs", "'amount' stands twice"),
        ("[" * 5_000, "{}", "args", ""),
        ("[" * 200 + "]" * 200, "{}", "args", "nested deeper"),
        ('["\\ud800"]', "{}", "args", "surrogate"),
        ('["\\u0000"]', "{}", "args", "NUL"),
        ("[" + "9" * 5_000 + "]", "{}", "args", "digits"),
        ("[]", "{}", "__all__", "missing a required argument: 'order_id'"),
        ("[1]", '{"amuont": 1}', "__all__", "unexpected keyword argument 'amuont'"),
        ("[1]", '{"amount": "%s"}' % ("x" * 2_000), "__all__", "the limit is 1,000"),
    ],
)
def test_arguments_that_cannot_be_are_refused_at_their_field(
    admin_client, settings, args, kwargs, field, said
):
    """What enqueuing would raise is shown beside what was typed; nothing is stored."""
    settings.PGQUEUE = {"PAYLOAD_BYTES_MAX": 1_000}
    row = make_charge(args=[7])
    data = {**open_form(admin_client, row), "args": args, "kwargs": kwargs}

    response = send(admin_client, row, **data, redrive="1")

    assert said in problems(response)[field]
    assert args in unescape(response.content.decode())
    assert [7] == DeadLetter.objects.get(pk=row.pk).args
    assert not Job.objects.exists()
    assert not LogEntry.objects.exists()


# Secrets -----------------------------------------------------------------------------


def test_the_form_shows_secrets_to_those_who_may_see_payloads(staff):
    """To others it says which permission is missing."""
    row = make_charge(args=[1, "s3cret"], kwargs={"amount": "1"})
    client = staff("view_deadletter", "view_payload", "edit")
    data = open_form(client, row)
    assert '[1, "s3cret"]' == data["args"]
    saved = send(client, row, **{**data, "args": '[2, "s3cret"]'})
    assert 302 == saved.status_code
    assert [2, "s3cret"] == DeadLetter.objects.get().args

    other = staff("view_deadletter", "edit")
    page = other.get(f"{DEAD}{row.pk}/change/").content.decode()
    assert "/edit/" not in page
    for answer in (other.get(f"{DEAD}{row.pk}/edit/"), send(other, row, **data)):
        assert f"{DEAD}{row.pk}/change/" == answer.url
    assert "needs the permission pgqueue.view_payload" in texts(answer)[-1]
    assert [2, "s3cret"] == DeadLetter.objects.get().args


# Who comes second --------------------------------------------------------------------


def test_the_second_of_two_edits_is_refused(admin_client):
    """It would undo the first without having seen it."""
    row = make_charge(args=[1])
    data = open_form(admin_client, row)
    first = send(admin_client, row, **{**data, "args": "[2]"})

    second = send(admin_client, row, **{**data, "args": "[3]"}, redrive="1")

    assert 302 == first.status_code
    assert "Somebody has edited this job" in problems(second)["__all__"]
    assert [2] == DeadLetter.objects.get().args


def test_an_edit_that_the_queue_refuses_is_undone(admin_client):
    """If the redrive fails, the arguments stay as they were."""
    row = make_charge(args=[1], priority=999)
    data = open_form(admin_client, row)

    response = send(admin_client, row, **{**data, "args": "[2]"}, redrive="1")

    assert "the queue refuses it" in texts(response)[0]
    assert [1] == DeadLetter.objects.get().args
    assert not LogEntry.objects.exists()


def test_what_a_worker_may_take_is_locked_while_it_is_stored(
    admin_client, monkeypatch, transactional_db
):
    """Between the look at the row and the write, nobody else changes it."""
    row = make_job(args=[1])
    data = open_form(admin_client, row, JOBS)
    original = edits.ArgumentsForm.is_valid
    seen = []

    def is_valid(form):
        with connections["default"].copy().cursor() as other:
            other.execute(
                "SELECT count(*) FROM (SELECT 1 FROM pgqueue_job WHERE id = %s"
                " FOR UPDATE SKIP LOCKED) free",
                [row.pk],
            )
            seen.append(other.fetchone()[0])
            other.connection.close()
        return original(form)

    monkeypatch.setattr(edits.ArgumentsForm, "is_valid", is_valid)
    send(admin_client, row, JOBS, **{**data, "args": "[2]"})

    assert [0] == seen


def update(row, *, args, kwargs):
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {row._meta.db_table} SET args = %s::jsonb, kwargs = %s::jsonb"
            " WHERE id = %s",
            [args, kwargs, row.pk],
        )


def stored(row):
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT args::text, kwargs::text FROM {row._meta.db_table} WHERE id = %s",
            [row.pk],
        )
        return cursor.fetchone()
