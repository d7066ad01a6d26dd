"""PGQUEUE["REDACT"]: what it names is shown on no page, to nobody."""

from __future__ import annotations

import json
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue.admin.payload import redact_json
from django_pgqueue.conf import Settings
from django_pgqueue.redaction.values import redact
from django_pgqueue.tasks.declare import task
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_declared,
    make_job,
    make_schedule,
)

PATTERNS = Settings().redact

KEYS = st.sampled_from(
    ["a", "token", "accessToken", "X-Api-Key", "b\\", '"', "pass\nword", "é:", "{", ""]
) | st.text(max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)


@task(name="tests.admin.sign_in")
def sign_in(user: str, password: str, *api_tokens: str, note: str = "") -> None:
    """A task with secrets among its positional arguments."""


@given(VALUES)
def test_text_is_redacted_as_values_are(value):
    """Whatever its shape, and however its keys are quoted."""
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert redact(value, PATTERNS) == json.loads(redact_json(text))


# On pages ----------------------------------------------------------------------------


def secrets(**columns):
    entry = {
        "kind": "error",
        "type": "shop.Declined",
        "message": "password=s3cret-message",
        "traceback": "call(api_key='s3cret-traceback')\nAuthorization: s3cret-header",
        "log": [[0.1, "token=s3cret-log"], ["token=s3cret-line"]],
    }
    return {
        "task": "tests.admin.sign_in",
        "args": ["ada", "s3cret-arg", "s3cret-more", "s3cret-most"],
        "kwargs": {"note": "shown", "deep": [{"client_secret": {"x": "s3cret-kw"}}]},
        "headers": {"Authorization": "s3cret-auth", "tags": ["vip"]},
        "progress": {"token": "s3cret-progress"},
        "errors": [entry, {"kind": "odd", "token": "s3cret-odd"}, ["token=s3cret-raw"]],
        **columns,
    }


@pytest.mark.django_db
def test_no_page_shows_a_secret(admin_client):
    """Lists, rows, history, groups: to a superuser, in all three tables."""
    admin = "/admin/pgqueue"
    job, letter = make_job(**secrets()), make_dead_letter(**secrets())
    archived = make_archived_job(**secrets(result={"token": "s3cret-result"}))
    rows = [("job", job), ("archivedjob", archived), ("deadletter", letter)]
    paths = [
        *(f"{admin}/{page}/" for page, _ in rows),
        *(f"{admin}/{page}/{row.pk}/change/" for page, row in rows),
        *(f"{admin}/{page}/{row.pk}/history/" for page, row in rows),
        f"{admin}/job/{job.pk}/cancel/",
        f"{admin}/deadletter/groups/",
        f"{admin}/job/groups/",
    ]

    for path in paths:
        response = admin_client.get(path)
        assert 200 == response.status_code
        assert "s3cret" not in response.content.decode(), path
    page = admin_client.get(f"{admin}/job/{job.pk}/change/").content.decode()
    assert '"note": "shown"' in unescape(page)
    assert "shop.Declined" in page


@pytest.mark.django_db
def test_no_page_of_a_schedule_shows_a_secret(admin_client):
    """Its page, its drift, its history; only the form that edits it shows them."""
    arguments = {"note": "shown", "deep": [{"client_secret": "s3cret-kw"}]}
    rows = [
        make_schedule(name="a", task="tests.admin.sign_in", kwargs=arguments),
        make_schedule(name="b", task="tests.admin.sign_in", args=["ada", "s3cret-arg"]),
        make_declared(
            {"args": ["ada", "s3cret-old"], "kwargs": {"token": "s3cret-declared"}},
            name="c",
            task="tests.admin.sign_in",
            kwargs=arguments,
            overridden_at="2026-01-01 00:00Z",
        ),
    ]
    url = "/admin/pgqueue/schedule/"
    pages = [admin_client.get(url)]
    for row in rows:
        pages += [
            admin_client.get(f"{url}{row.pk}/{look}/")
            for look in ("change", "run-now", "history")
        ]

    for page in pages:
        assert 200 == page.status_code
        assert "s3cret" not in page.content.decode(), page.request["PATH_INFO"]
    assert any('"note": "shown"' in unescape(p.content.decode()) for p in pages)
    assert any("ada" in page.content.decode() for page in pages)


@pytest.mark.django_db
def test_no_message_and_no_log_entry_tells_a_secret(admin_client):
    """Every act on rows that are full of them."""
    url = "/admin/pgqueue/deadletter/"
    answers = []
    for name in ("redrive", "redrive-to", "set-aside", "purge"):
        row = make_dead_letter(**secrets())
        data = {"confirmed": "1", "queue": "x", "is_new": "on", "reason": "y"}
        path = f"{url}{row.pk}/{name}/"
        answers.append(admin_client.post(path, data, follow=True))
    job = make_job(**secrets())
    answers.append(
        admin_client.post(
            f"/admin/pgqueue/job/{job.pk}/cancel/", {"confirmed": "1"}, follow=True
        )
    )

    assert 5 == LogEntry.objects.count()
    for entry in LogEntry.objects.all():
        assert "s3cret" not in f"{entry.object_repr} {entry.change_message}"
    for answer in answers:
        assert "s3cret" not in answer.content.decode()
