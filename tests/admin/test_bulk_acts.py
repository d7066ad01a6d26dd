"""Bulk acts: from a list's filter to a worker, and the page that says how far it is."""

from __future__ import annotations

import time

import pytest
from django.contrib.admin.models import LogEntry
from django.core import signing

from django_pgqueue.admin import bulk_form
from django_pgqueue.models import BulkAct, DeadLetter
from django_pgqueue.operators import bulk_acts
from tests.harness.factories import make_dead_letter, make_job

pytestmark = pytest.mark.django_db

LETTERS, JOBS = "/admin/pgqueue/deadletter/", "/admin/pgqueue/job/"
ACTS = "/admin/pgqueue/bulkact/"
FORM = f"{LETTERS}all-redrive/?queue=mail"


def confirm(client, url=FORM, *, counted=2, **data):
    page = client.get(url)
    shown = dict(page.context["hidden"])["shown"] if page.context else ""
    sent = {"reason": "bank is back", "shown": shown, "typed": counted, **data}
    return client.post(url, sent)


@pytest.fixture
def mails():
    """Two dead letters of the queue mail, and one of another."""
    made = [make_dead_letter(queue="mail"), make_dead_letter(queue="mail")]
    make_dead_letter(queue="slow")
    return made


def test_a_list_leads_to_what_can_be_done_to_all_that_it_shows(admin_client, mails):
    """With its filter, and without its place."""
    html = admin_client.get(f"{LETTERS}?queue=mail&oldest=1").content.decode()

    assert f'href="{FORM}"' in html
    assert f'href="{LETTERS}all-set-aside/?queue=mail"' in html


def test_confirmed_it_is_asked_for_and_noted(admin_client, mails):
    """Who and why stand in the row and in Django's log; the rows are still there."""
    answer = confirm(admin_client, per_second="50")

    act = BulkAct.objects.get()
    assert f"{ACTS}{act.pk}/change/" == answer.url
    assert ("redrive", {"queue": "mail"}, "admin") == (
        *(act.verb, act.filters, act.asked_by),
    )
    assert ("bank is back", 50, 2) == (act.reason, act.per_second, act.counted)
    entry = LogEntry.objects.get()
    assert str(act.pk) == entry.object_id
    assert "Asked for, of queue=mail: bank is back" == entry.change_message
    assert 3 == DeadLetter.objects.count()


def test_only_our_own_form_of_this_filter_and_the_last_hour_confirms(
    admin_client, mails, monkeypatch
):
    """Others are shown again, with the number of rows; that one confirms."""
    shown = dict(admin_client.get(FORM).context["hidden"])["shown"]
    content, now = signing.loads(shown, salt=bulk_form.SALT), time.time()

    def signed(key=None, age=3_500):
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda: now - age)
            return signing.dumps(content, key=key, salt=bulk_form.SALT)

    other = f"{LETTERS}all-redrive/"
    for url, text in (
        (FORM, "2"),
        (FORM, signed(key="other")),
        (FORM, signed(age=3_601)),
        (other, signed()),
    ):
        answer = confirm(admin_client, url, shown=text)
        html = answer.content.decode()
        assert "counted anew" in html
        assert f"{3 if url == other else 2} rows: " in html
    assert 0 == BulkAct.objects.count()
    assert 302 == confirm(admin_client, shown=signed()).status_code


def test_what_comes_after_the_page_is_not_meant(admin_client, mails):
    """The number that was typed is the number that is done."""
    page = admin_client.get(FORM)
    shown = dict(page.context["hidden"])["shown"]
    late = make_dead_letter(queue="mail")

    failed = confirm(admin_client, shown=shown, typed="3")
    assert "2 rows: queue=mail." in failed.content.decode()
    assert "type 2, the number of rows" in failed.content.decode()
    assert 0 == BulkAct.objects.count()
    confirm(admin_client, shown=shown)
    bulk_acts.step()

    act = BulkAct.objects.get()
    assert ("done", 2, 2) == (act.state, act.counted, act.done)
    assert DeadLetter.objects.filter(pk=late.pk).exists()


def test_its_page_shows_how_far_it_is_and_who_is_missing(admin_client, mails):
    """It renews itself until the act has ended."""
    confirm(admin_client)
    page = f"{ACTS}{BulkAct.objects.get().pk}/change/"

    html = admin_client.get(page).content.decode()
    assert "0 / 2" in html
    assert "No living worker does this" in html
    assert "data-pgqueue-renew" in html

    assert bulk_acts.step()
    html = admin_client.get(page).content.decode()
    assert "2 / 2" in html
    assert "No living worker does this" not in html
    assert "data-pgqueue-renew" not in html
    html = admin_client.get(ACTS).content.decode()
    for text in ("queue=mail", "bank is back", "2 / 2", "admin"):
        assert text in html


@pytest.mark.parametrize(
    "url, needed",
    [
        (f"{LETTERS}all-redrive/", {"view_deadletter", "retry"}),
        (f"{LETTERS}all-set-aside/", {"view_deadletter", "cancel"}),
        (f"{JOBS}all-retry/", {"view_job", "retry"}),
        (f"{JOBS}all-cancel/", {"view_job", "cancel"}),
    ],
)
def test_it_takes_the_permission_of_the_act(staff, url, needed):
    """Each of those that it needs."""
    make_dead_letter()
    make_job(attempt=1, deliveries=1, visible_at="2100-01-01T00:00:00Z")
    everything = {"view_deadletter", "view_job", "view_bulkact", "retry", "cancel"}
    for missing in needed:
        client = staff(*everything - {missing})
        assert 403 == client.get(url).status_code
        assert 403 == confirm(client, url, counted=1).status_code
    assert 0 == BulkAct.objects.count()

    assert 302 == confirm(staff(*needed), url, counted=1).status_code
    assert 1 == BulkAct.objects.count()


def test_only_who_may_do_it_may_stop_it(staff, mails):
    """Viewing the list of bulk acts is not enough."""
    confirm(staff("view_deadletter", "retry"))
    act = BulkAct.objects.get()
    url = f"{ACTS}{act.pk}/stop/"

    staff("view_bulkact", "cancel").post(url, {"confirmed": "1"})
    act.refresh_from_db()
    assert "waiting" == act.state

    staff("view_bulkact", "retry").post(url, {"confirmed": "1"})
    act.refresh_from_db()
    assert "stopped" == act.state
    assert not bulk_acts.step()


def test_an_error_is_shown_to_those_who_may_see_payloads(staff):
    """PostgreSQL's words can have values of a row in them."""
    act = BulkAct.objects.create(
        verb="redrive", counted=1, top=1, state="failed", error="value 4711 refused"
    )
    page = f"{ACTS}{act.pk}/change/"

    assert "4711" not in staff("view_bulkact").get(page).content.decode()
    seeing = staff("view_bulkact", "view_payload")
    assert "value 4711 refused" in seeing.get(page).content.decode()
