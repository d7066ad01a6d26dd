"""Dead letters: why they died, and the way back."""

from __future__ import annotations

from html import escape

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.messages import get_messages

from django_pgqueue.admin import acting
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from tests.harness.factories import make_dead_letter

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/deadletter/"


def error(attempt, **entry):
    return {
        "kind": "error",
        "type": "shop.errors.CardDeclined",
        "message": f"declined {attempt}",
        "traceback": f"Traceback of attempt {attempt}",
        "attempt": attempt,
        "delivery": attempt,
        "worker": f"web-{attempt}:42",
        "at": "2026-11-20T20:10:00+00:00",
        "ran_seconds": 0.25,
        **entry,
    }


def redrive(client, *ids, **data):
    return client.post(URL, {"action": "redrive", "_selected_action": ids, **data})


def texts(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_the_list_shows_the_last_error_in_short(admin_client):
    """Its class without the module, and the first line of its message."""
    make_dead_letter(errors=[error(1), error(2, message="declined\nby the bank")])
    make_dead_letter(errors=[{"kind": "worker_lost", "message": "signal 9"}])
    make_dead_letter(errors=[error(1, message="x" * 5_000)])
    make_dead_letter(errors=[])

    html = admin_client.get(URL).content.decode()

    assert ">CardDeclined: declined</span>" in html
    assert ">worker_lost: signal 9</span>" in html
    assert "by the bank" not in html
    assert "x" * 150 + "…" not in html
    assert "x" * 100 in html
    assert "x" * 161 not in html


def test_a_dead_letter_shows_every_attempt(admin_client):
    """Kind, class, message, traceback, time and worker; the last attempt is open."""
    row = make_dead_letter(
        errors=[
            error(1),
            {"kind": "lease_expired", "message": "The lease ran out", "worker": "w-9"},
            error(3),
        ]
    )

    html = admin_client.get(f"{URL}{row.pk}/change/").content.decode()

    for attempt in (1, 3):
        assert f"Traceback of attempt {attempt}" in html
        assert f"declined {attempt}" in html
        assert f"web-{attempt}:42" in html
    assert "lease_expired" in html
    assert "w-9" in html
    assert "2026-11-20 20:10:00 UTC" in html
    assert 3 == html.count("<details ")
    assert 1 == html.count('<details class="pgqueue-failure" open>')
    assert html.index("of attempt 3") < html.index("of attempt 1")


def test_selected_dead_letters_go_back_to_their_queues(staff):
    """From attempt 1 on, with the same id; the others stay."""
    mail = make_dead_letter(queue="mail")
    default = make_dead_letter()
    other = make_dead_letter()
    client = staff("view_deadletter", "retry")

    response = redrive(client, mail.pk, default.pk)

    assert URL == response.url
    assert ["2 redriven."] == texts(response)
    assert {mail.pk: ("mail", 0), default.pk: ("default", 0)} == {
        job.pk: (job.queue, job.attempt) for job in Job.objects.all()
    }
    assert [other.pk] == list(DeadLetter.objects.values_list("pk", flat=True))


def test_only_ticked_rows_move_whatever_the_form_says(admin_client):
    """select_across asks for the whole table, which no request may lock."""
    ticked, other = make_dead_letter(), make_dead_letter()

    redrive(admin_client, ticked.pk, select_across="1")

    assert [other.pk] == list(DeadLetter.objects.values_list("pk", flat=True))


def test_one_request_moves_a_bounded_number(admin_client, monkeypatch):
    """More than that are refused as a whole, with the limit."""
    monkeypatch.setattr(acting, "SELECTED_ROWS_MAX", 2)
    rows = [make_dead_letter().pk for _ in range(3)]

    response = redrive(admin_client, *rows)

    assert ["Nothing was done: 3 rows were ticked, at most 2"] == texts(response)
    assert 3 == DeadLetter.objects.count()
    redrive(admin_client, *rows[:2])
    assert 1 == DeadLetter.objects.count()


# To another queue, aside, away --------------------------------------------------------


def act(client, name, *ids, **data):
    return client.post(
        URL,
        {"action": name, "_selected_action": ids, "confirmed": "1", **data},
    )


def test_dead_letters_are_redriven_to_another_queue(staff):
    """All that are ticked, to the one that is named; the log has both."""
    mail, default = make_dead_letter(queue="mail"), make_dead_letter()
    client = staff("view_deadletter", "retry")

    response = act(client, "redrive-to", mail.pk, default.pk, queue="slow", is_new="on")

    assert ["2 redriven to queue slow."] == texts(response)
    assert {mail.pk: "slow", default.pk: "slow"} == dict(
        Job.objects.values_list("pk", "queue")
    )
    assert {
        'Redriven to queue "slow"; it was in "mail".',
        'Redriven to queue "slow"; it was in "default".',
    } == {entry.get_change_message() for entry in LogEntry.objects.all()}


def test_dead_letters_are_set_aside_with_who_and_why(staff):
    """To the archive as cancelled; their errors stay, and say it."""
    row = make_dead_letter(errors=[error(1)])
    client = staff("view_deadletter", "view_archivedjob", "cancel")

    response = act(client, "set-aside", row.pk, reason="customer <left>")

    assert ["1 set aside, to the archive."] == texts(response)
    archived = ArchivedJob.objects.get(pk=row.pk)
    assert "cancelled" == archived.state
    entry = archived.errors[-1]
    assert ("set_aside", "customer <left>") == (entry["kind"], entry["message"])
    assert entry["by"].startswith("staff-")
    logged = LogEntry.objects.get().get_change_message()
    assert "Set aside, to the archive: customer <left>" == logged
    page = client.get(f"/admin/pgqueue/archivedjob/{row.pk}/change/").content.decode()
    assert "customer &lt;left&gt;" in page


def test_dead_letters_are_deleted_for_ever(staff):
    """After a question; the log keeps who, and which task."""
    row, other = make_dead_letter(task="shop.send"), make_dead_letter()
    client = staff("view_deadletter", "purge")

    asked = client.post(URL, {"action": "purge", "_selected_action": [row.pk]})
    assert f"shop.send #{row.pk}" in asked.content.decode()
    assert 2 == DeadLetter.objects.count()
    response = act(client, "purge", row.pk)

    assert ["1 deleted."] == texts(response)
    assert [other.pk] == list(DeadLetter.objects.values_list("pk", flat=True))
    entry = LogEntry.objects.get()
    assert (DELETION, f"shop.send #{row.pk}") == (entry.action_flag, entry.object_repr)


# Groups -------------------------------------------------------------------------------


def test_the_latest_are_grouped_by_task_reason_and_error(admin_client):
    """The largest group first, each with a link to its own dead letters."""
    for _ in range(3):
        make_dead_letter(task="shop.charge", errors=[error(1)])
    make_dead_letter(task="shop.charge", errors=[{"kind": "worker_lost"}])
    make_dead_letter(task="shop.send", errors=[])
    make_dead_letter(task="shop.send_all", errors=[], reason="timeout")
    elsewhere = error(1, traceback='  File "/srv/shop/refund.py", line 3, in refund')
    make_dead_letter(task="shop.charge", errors=[elsewhere])
    url = f"{URL}groups/"

    response = admin_client.get(url)

    html = response.content.decode()
    lines = response.context["groups"]
    found = [line["group"] for line in lines]
    assert (3, "shop.errors.CardDeclined") == (found[0].count, found[0].alike.error)
    assert 5 == len(found)
    assert "Of all 7 dead letters." in html
    assert {"-", "shop/refund.py in refund"} == {each.alike.place for each in found}
    links = [line["url"] for line in lines]
    assert [3, 1, 1, 1, 1] == [
        len(admin_client.get(link).context["cl"].result_list) for link in links
    ]
    links += [f"{URL}{each.sample}/change/" for each in found]
    assert [] == [link for link in links if f'href="{escape(link)}"' not in html]
    assert f'href="{url}"' in admin_client.get(URL).content.decode()
