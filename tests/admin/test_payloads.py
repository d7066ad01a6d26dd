"""Arguments, results, errors and output: who sees them, and how they are laid out."""

from __future__ import annotations

import json
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as st

from django_pgqueue.admin.payload import laid_out
from django_pgqueue.models import Output
from tests.harness.factories import make_archived_job, make_dead_letter, make_job
from tests.log.rows import make_message

MAKERS = {
    "job": make_job,
    "archivedjob": make_archived_job,
    "deadletter": make_dead_letter,
}

ERROR = {
    "kind": "error",
    "type": "shop.Declined",
    "message": "secret-message of the bank",
    "traceback": "File secret-traceback",
}


def secret_row(noun):
    """Make a row with a secret in every column of arguments, results and keys."""
    keys = ["dedup_key", "accumulate_key", "lane"]
    result = {"result": "secret-result"} if noun == "archivedjob" else {}
    return MAKERS[noun](
        args=["secret-arg"],
        kwargs={"key": "secret-kwarg"},
        headers={"trace": "secret-header"},
        progress="secret-progress",
        errors=[ERROR],
        **{key: f"secret-{key}" for key in keys},
        **result,
    )


def asked(client, path):
    """Return the page, and its statements as one text."""
    with CaptureQueriesContext(connection) as queries:
        html = client.get(path).content.decode()
    return html, " ".join(query["sql"] for query in queries)


@pytest.mark.django_db
@pytest.mark.parametrize("noun", MAKERS)
def test_payloads_need_a_permission_of_their_own(staff, noun):
    """Without view_payload they are neither shown nor read; the error's class is."""
    row = secret_row(noun)
    url = f"/admin/pgqueue/{noun}/"

    hidden, read = asked(staff(f"view_{noun}"), f"{url}{row.pk}/change/")
    shown, _ = asked(staff(f"view_{noun}", "view_payload"), f"{url}{row.pk}/change/")
    listed, read_by_list = asked(staff(f"view_{noun}"), url)

    assert "secret" not in hidden
    assert "secret" not in listed
    assert "needs permission pgqueue.view_payload" in hidden
    assert "shop.Declined" in hidden
    assert '"kwargs"' not in read
    assert '"args"' not in read
    names = ["arg", "kwarg", "header", "progress", "traceback", "dedup_key", "lane"]
    assert [] == [name for name in names if f"secret-{name}" not in shown]
    assert ("secret-result" in shown) == (noun == "archivedjob")
    # A list reads none of them, whoever looks; of the headers, the tags.
    tags = r"""\("pgqueue_\w+"\."headers" -> 'tags'\)"""
    read_by_list = re.sub(tags, "", read_by_list)
    columns = ["args", "kwargs", "headers", "result", "progress"]
    assert [] == [name for name in columns if f'"{name}"' in read_by_list]


@pytest.mark.django_db
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


@pytest.mark.django_db
@pytest.mark.parametrize("noun", MAKERS)
def test_the_latest_output_is_shown_on_every_page_of_a_job(staff, noun):
    """In its order, escaped, cut, and without secrets; for others it is not read."""
    row = MAKERS[noun]()
    values = [
        *(f"word {number:02}" for number in range(18)),
        {"token": "hunter2", "of": "<b>ada</b>"},
        "long" * 1_000,
        "last",
    ]
    for number, value in enumerate(values):
        Output.objects.create(
            job_id=row.pk, sequence=1_000_000 + number, attempt=1, value=value
        )
    path = f"/admin/pgqueue/{noun}/{row.pk}/change/"

    html, _ = asked(staff(f"view_{noun}", "view_payload"), path)
    other, read = asked(staff(f"view_{noun}"), path)

    assert html.index("word 01") < html.index("word 17")
    assert "word 00" not in html
    assert "hunter2" not in html
    assert "&lt;b&gt;ada" in html
    assert "long" * 251 not in html
    assert "word" not in other
    assert "pgqueue_output" not in read


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(max_examples=20)
@given(JSON)
def test_layout_changes_nothing_but_space(value):
    """What is laid out reads as the same JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)

    assert value == json.loads(laid_out(text))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"' + "a" * 100_000, '["\\"' * 30_000, "no json at all"]
)
def test_any_text_is_laid_out(text):
    """Cut off, unbalanced or no JSON: nothing is lost."""
    assert "".join(text.split()) == "".join(laid_out(text).split())
