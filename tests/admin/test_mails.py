"""The pages of jobs that send mails: what they show, to whom, and sending one again."""

from __future__ import annotations

from datetime import timedelta
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry
from django.core.mail import EmailMessage

from django_pgqueue.backends.mail import message_id, write
from django_pgqueue.backends.mail_connections import store_mails
from django_pgqueue.models import ArchivedJob, Job, MailFile
from tests.admin.stored_mails import FILE, HTML, a_mail
from tests.harness.factories import make_archived_job, make_dead_letter, make_job

pytestmark = pytest.mark.django_db

PAGES = {
    "job": lambda **said: make_job(run_after=timedelta(hours=1), **said),
    "deadletter": make_dead_letter,
    "archivedjob": make_archived_job,
}

BODIES = ("Plain body", "HTML body", "X-Order")


def page_of(client, page, row):
    return client.get(f"/admin/pgqueue/{page}/{row.pk}/change/").content.decode()


@pytest.mark.parametrize("page", PAGES)
def test_bodies_and_files_need_their_own_permission(staff, page):
    """Who may see payloads sees the envelope and the parts; others see none of it."""
    row = PAGES[page](**a_mail())
    file = f"/admin/pgqueue/{page}/{row.pk}/mail-file/?part=0"
    view = f"view_{page}"

    nobody = page_of(staff(view, "view_mail_body"), page, row)
    some = page_of(staff(view, "view_payload"), page, row)
    every = unescape(page_of(staff(view, "view_payload", "view_mail_body"), page, row))

    envelope = ("ann@example.org", "shop@example.org", "Your order", "receipt.pdf")
    assert not any(text in nobody for text in (*envelope, *BODIES))
    assert all(text in some for text in envelope)
    assert "needs permission pgqueue.view_mail_body" in some
    assert not any(text in some for text in (*BODIES, "mail-file", "JVBERg"))
    assert all(text in every for text in (*envelope, *BODIES, "mail-file"))
    for lacking in (view, "view_payload", "view_mail_body"):
        has = {view, "view_payload", "view_mail_body"} - {lacking}
        assert 403 == staff(*has).get(file).status_code, lacking


@pytest.mark.parametrize("page", PAGES)
def test_what_was_mailed_does_not_run_in_the_admin(admin_client, page):
    """HTML is shown as text; a file is a download of unknown kind, under any name."""
    row = PAGES[page](**a_mail(name='a"b;\r\n../<b>ü.html'))

    html = page_of(admin_client, page, row)
    file = admin_client.get(f"/admin/pgqueue/{page}/{row.pk}/mail-file/?part=0")

    assert HTML not in html
    assert HTML in unescape(html)
    assert FILE == file.content
    assert (
        "application/octet-stream",
        "nosniff",
        "default-src 'none'; sandbox",
    ) == tuple(
        file[name]
        for name in (
            "Content-Type",
            "X-Content-Type-Options",
            "Content-Security-Policy",
        )
    )
    assert file["Content-Disposition"].startswith("attachment; filename")
    assert not {"\r", "\n", "/"} & {*file["Content-Disposition"]}
    assert "no-store" in file["Cache-Control"]


def test_a_file_beside_its_mail_is_a_download_too(admin_client):
    """With its size, and without being read for the page; gone, it is not found."""
    message = EmailMessage("Hi", "Text", "a@example.org", ["b@example.org"])
    message.attach("rows.csv", "a;b\n" * 5_000, "text/csv")
    (job,) = store_mails([write(message)])
    file = f"/admin/pgqueue/job/{job}/mail-file/?part=0"

    html = page_of(admin_client, "job", Job.objects.get())
    assert "text/csv 20 kB" in html
    assert b"a;b\n" * 5_000 == admin_client.get(file).content
    MailFile.objects.all().delete()
    assert 404 == admin_client.get(file).status_code
    assert "rows.csv" in page_of(admin_client, "job", Job.objects.get())


# Sent again --------------------------------------------------------------------------


def resend(client, *rows):
    data = {"action": "resend", "_selected_action": [row.pk for row in rows]}
    url = "/admin/pgqueue/archivedjob/"
    return client.post(url, {**data, "confirmed": "1"}, follow=True).content.decode()


def test_a_mail_that_was_sent_is_sent_again_as_a_new_one(admin_client):
    """With a Message-ID of its own, though the first had one that was given."""
    row = make_archived_job(**a_mail(**{"message-id": "<given@example.org>"}))

    html = resend(admin_client, row)

    job = Job.objects.get()
    assert f"1 sent again as a new mail, by job {job.pk}." in html
    old, new = row.kwargs["mail"], job.kwargs["mail"]
    assert "<given@example.org>" == message_id(old)
    assert message_id(new) not in ("", message_id(old))
    assert {**old, "headers": 0} == {**new, "headers": 0}
    assert "17" == new["headers"]["X-Order"]
    assert ArchivedJob.objects.filter(pk=row.pk).exists()
    entry = LogEntry.objects.get()
    assert f"Sent again as a new mail, by job {job.pk}." == entry.change_message
