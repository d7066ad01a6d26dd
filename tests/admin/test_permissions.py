"""Who may see which page, and what of it."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.harness.factories import make_archived_job, make_dead_letter, make_job
from tests.log.rows import make_message

pytestmark = pytest.mark.django_db

MAKERS = {
    "job": make_job,
    "archivedjob": make_archived_job,
    "deadletter": make_dead_letter,
}
PAGES = [*MAKERS, "queue", "worker"]

SECRETS = {
    "args": ["secret-arg"],
    "kwargs": {"key": "secret-kwarg"},
    "headers": {"trace": "secret-header"},
    "progress": "secret-progress",
    "errors": [
        {
            "kind": "error",
            "type": "shop.Declined",
            "message": "said by the bank",
            "traceback": "File secret-traceback",
        }
    ],
}


@pytest.mark.parametrize("page", MAKERS)
def test_payloads_need_a_permission_of_their_own(staff, page):
    """Without view_payload they are not shown, and not even read."""
    row = MAKERS[page](**SECRETS, **result_of(page))
    client = staff(f"view_{page}")

    with CaptureQueriesContext(connection) as queries:
        html = client.get(f"/admin/pgqueue/{page}/{row.pk}/change/").content.decode()

    assert "secret" not in html
    assert "needs permission pgqueue.view_payload" in html
    assert "shop.Declined" in html
    assert "said by the bank" not in html
    read = " ".join(query["sql"] for query in queries)
    assert '"kwargs"' not in read
    assert '"args"' not in read


@pytest.mark.parametrize("page", MAKERS)
def test_payloads_are_shown_to_those_who_may_see_them(staff, page):
    """Arguments, headers, progress, the result and tracebacks."""
    row = MAKERS[page](**SECRETS, **result_of(page))
    client = staff(f"view_{page}", "view_payload")

    html = client.get(f"/admin/pgqueue/{page}/{row.pk}/change/").content.decode()

    for name in ("arg", "kwarg", "header", "progress", "traceback"):
        assert f"secret-{name}" in html
    assert ("secret-result" in html) == (page == "archivedjob")
    assert "view_payload" not in html


KEYS = {
    "job": ("dedup_key", "queued_key", "accumulate_key", "lane"),
    "archivedjob": ("dedup_key", "accumulate_key", "lane"),
    "deadletter": ("dedup_key", "accumulate_key", "lane"),
}


@pytest.mark.parametrize("page", MAKERS)
def test_keys_of_jobs_need_the_permission_of_payloads(staff, page):
    """They are made of arguments."""
    row = MAKERS[page](**{name: f"secret-{name}" for name in KEYS[page]})
    url = f"/admin/pgqueue/{page}/{row.pk}/change/"

    html = staff(f"view_{page}").get(url).content.decode()
    seen = staff(f"view_{page}", "view_payload").get(url).content.decode()

    assert "secret" not in html
    assert "needs pgqueue.view_payload" in html
    assert [] == [name for name in KEYS[page] if f"secret-{name}" not in seen]


@pytest.mark.parametrize("is_allowed", [False, True])
def test_keys_of_messages_need_the_permission_of_payloads(staff, is_allowed):
    """In the list, on the page, and to look for."""
    message = make_message("orders.paid", key="secret-key")
    make_message("orders.paid", key="other")
    client = staff("view_message", *(["view_payload"] if is_allowed else []))
    url = "/admin/pgqueue/message/"

    listed = client.get(url).content.decode()
    page = client.get(f"{url}{message.pk}/change/").content.decode()
    asked = client.get(f"{url}?topic=orders&key=secret-key")

    assert is_allowed == ("secret-key" in listed)
    assert is_allowed == ("secret-key" in page)
    assert is_allowed == (1 == len(asked.context["cl"].result_list))


@pytest.mark.parametrize("page", MAKERS)
def test_lists_read_no_payload(admin_client, page):
    """A list of 50 jobs with megabytes of arguments reads none of them."""
    MAKERS[page](**SECRETS, **result_of(page))

    with CaptureQueriesContext(connection) as queries:
        response = admin_client.get(f"/admin/pgqueue/{page}/")

    assert b"secret" not in response.content
    read = " ".join(query["sql"] for query in queries)
    # Of the headers, the tags.
    read = re.sub(r"""\("pgqueue_\w+"\."headers" -> 'tags'\)""", "", read)
    for column in ("args", "kwargs", "headers", "result", "progress"):
        assert f'"{column}"' not in read


def result_of(page):
    return {"result": "secret-result"} if page == "archivedjob" else {}
