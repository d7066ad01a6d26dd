"""Failures: what goes wrong by kind, and the dead letters of each."""

from __future__ import annotations

from html import unescape

import pytest

from django_pgqueue.admin import failures
from django_pgqueue.models import DeadLetter
from django_pgqueue.pipeline import failures as stored
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


def test_kinds_stand_by_how_often_they_happened_of_late(admin_client):
    """In the period that is asked for, and not ever since."""
    make_failure(DECLINED, hours={30: 500, 2: 1})
    make_failure(LOST, hours={1: 3, 4: 4})

    _, day = shown(admin_client)
    _, week = shown(admin_client, "?period=7d")

    assert [("worker_lost", 7), ("shop.CardDeclined", 1)] == [
        (line.kind.error_class, line.kind.recent) for line in day
    ]
    assert [501, 7] == [line.kind.recent for line in week]


def test_a_kind_has_its_trend_tasks_and_times(admin_client):
    """A bar for each span with errors, said in words too."""
    make_failure(
        DECLINED,
        hours={0: 2, 1: 8, 5: 1},
        tasks=["a", "b", "c", "d", "e"],
        dead_letters=4,
    )

    html, (line,) = shown(admin_client)

    assert 3 == len(line.bars)
    assert "Highest: 8; now 2. All: 0, 0, " in line.trend
    assert "a, b, c and 2 more" in html
    assert "shop/pay.py in charge" in html
    assert "code <n>, api_key=[redacted], customer <text>" in html
    assert f'href="{line.letters_url}">4</a>' in html


def test_texts_and_tasks_narrow_the_list(admin_client):
    """A part of class, message or place; a whole task."""
    make_failure(DECLINED, tasks=["shop.charge"])
    make_failure(LOST, tasks=["shop.mail"])

    def found(query):
        return [line.kind.error_class for line in shown(admin_client, query)[1]]

    for query in ("?q=carddecl", "?q=CUSTOMER", "?q=pay.py", "?task=shop.charge"):
        assert ["shop.CardDeclined"] == found(query), query
    assert ["worker_lost"] == found("?q=signal")
    assert [] == found("?q=100%25")
    assert [] == found("?task=shop")


def test_messages_need_view_payload(staff):
    """Neither shown nor found, in the list, on the page, in its title and history."""
    failure = make_failure(DECLINED)
    client = staff("view_failure")

    html, (line,) = shown(client)

    assert "shop.CardDeclined" in html
    assert "" == line.message
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


def test_the_list_is_bounded_and_says_so(admin_client, monkeypatch):
    """Kinds, and the hours that are read for them."""
    monkeypatch.setattr(failures, "KINDS_SHOWN_MAX", 1)
    monkeypatch.setattr(stored, "ROWS_MAX", 2)
    make_failure(DECLINED, hours={0: 1, 9: 100})
    make_failure(LOST, hours={1: 5})

    html, lines = shown(admin_client)

    assert [("worker_lost", 5)] == [(x.kind.error_class, x.kind.recent) for x in lines]
    assert "The first 1; there are more." in html
    assert "Of the latest 2 hours of failures" in html
