"""Failures: what goes wrong by kind, and the dead letters of each."""

from __future__ import annotations

from html import unescape

import pytest

from django_pgqueue.models import DeadLetter
from tests.harness.factories import make_dead_letter, make_failure

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/failure/"
LETTERS = "/admin/pgqueue/deadletter/"

DECLINED = {
    "kind": "error",
    "type": "shop.CardDeclined",
    "message": "code 51, api_key=s3cret, customer 'Jane'",
    "traceback": '  File "/srv/shop/pay.py", line 3, in charge\n    bank()\n',
}
LOST = {"kind": "worker_lost", "message": "signal 9"}


def shown(client, query=""):
    """Return the page's text and its lines."""
    response = client.get(f"{URL}{query}")
    assert 200 == response.status_code
    return unescape(response.content.decode()), response.context["lines"]


def test_a_kind_has_its_trend_tasks_and_times(admin_client):
    """A bar for each span with errors, said in words too."""
    make_failure(
        DECLINED,
        hours={0: 2, 1: 8, 5: 1},
        tasks=["a", "b", "c", "d", "e"],
        dead_letters=4,
    )

    html, (line,) = shown(admin_client)

    assert 3 == len(line["bars"])
    assert "Highest: 8; now 2. All: 0, 0, " in line["trend"]
    assert "a, b, c and 2 more" in html
    assert "shop/pay.py in charge" in html
    assert "code <n>, api_key=[redacted], customer <text>" in html
    assert f'href="{line["letters_url"]}">4</a>' in html


def test_messages_need_view_payload(staff):
    """Neither shown nor found, in the list, on the page, in its title and history."""
    failure = make_failure(DECLINED)
    client = staff("view_failure")

    html, _lines = shown(client)

    assert "shop.CardDeclined" in html
    assert [] == shown(client, "?q=customer")[1]
    for look in ("", f"{failure.pk}/change/", f"{failure.pk}/history/"):
        text = client.get(URL + look).content.decode()
        assert "customer" not in text, look
        assert "bank()" not in text, look
    assert "needs permission pgqueue.view_payload" in html


def test_the_page_of_a_kind_has_a_sample_without_secrets(admin_client):
    """Also where it was stored with them, before a pattern was added."""
    failure = make_failure(
        DECLINED, hours={0: 3}, sample_message=DECLINED["message"], sample_job_id=77
    )

    response = admin_client.get(f"{URL}{failure.pk}/change/")

    html = unescape(response.content.decode())
    assert "code 51, api_key=[redacted], customer 'Jane'" in html
    assert "s3cret" not in html
    assert "bank()" in html
    assert 'href="/admin/pgqueue/job/77/change/"' in html
    assert [3] == [
        value for value in response.context["chart"].series[0].values if value
    ]


def test_a_dead_letter_names_the_kind_that_it_died_of(admin_client, staff):
    """By its last error, whatever people did afterwards; for those who may see it."""
    failure = make_failure(DECLINED, dead_letters=3)
    edited = {"kind": "edited", "message": "amount", "by": "ada"}
    row = make_dead_letter(errors=[LOST, DECLINED, edited])
    path = f"{LETTERS}{row.pk}/change/"

    html = unescape(admin_client.get(path).content.decode())
    other = staff("view_deadletter").get(path).content.decode()

    assert "What it died of" in html
    assert f'href="{URL}{failure.pk}/change/">shop.CardDeclined: code <n>' in html
    assert f'href="{LETTERS}?kind={failure.pk}"' in html
    assert failure.pk not in other
    assert failure.pk not in admin_client.get(LETTERS).content.decode()


def test_dead_letters_of_one_kind_are_listed_and_redriven(admin_client):
    """Alike but for what differs: numbers, names, secrets."""
    other = {**DECLINED, "message": "code 7, api_key=xyz, customer 'Joe'"}
    elsewhere = {**DECLINED, "traceback": '  File "/srv/shop/b.py", line 1, in x\n'}
    alike = [make_dead_letter(errors=[entry]).pk for entry in (DECLINED, other)]
    for errors in ([DECLINED, LOST], [elsewhere], [], ["odd"], {"a": 1}):
        make_dead_letter(errors=errors)
    failure = make_failure(DECLINED)
    url = f"{LETTERS}?kind={failure.pk}"

    response = admin_client.get(url)
    data = {"action": "redrive", "_selected_action": alike}
    admin_client.post(url, data)

    assert alike[::-1] == [row.pk for row in response.context["cl"].result_list]
    assert "Dead letters that died of this failure:" in response.content.decode()
    assert not DeadLetter.objects.filter(pk__in=alike).exists()
    assert 5 == DeadLetter.objects.count()
