"""Mails as jobs: in the caller's transaction, through a real server, by its answers."""

from __future__ import annotations

import logging
import os
import signal
from email.header import decode_header, make_header
from email.message import MIMEPart
from email.mime.image import MIMEImage

import django
import pytest
from django.core import mail
from django.core.mail import EmailMessage, EmailMultiAlternatives, send_mail
from django.core.mail.backends import locmem
from django.core.mail.backends.base import BaseEmailBackend
from django.db import transaction

from django_pgqueue import JobResult
from django_pgqueue.backends.email import EmailBackend
from django_pgqueue.backends.mail import mailers
from django_pgqueue.backends.mail_connections import deliver_mail
from django_pgqueue.conf import EMAIL_BACKEND
from django_pgqueue.exceptions import (
    InvalidArgument,
    PayloadTooLarge,
    SettingsError,
)
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.testing import drain
from tests.harness.mail_server import EMAIL, MailServer, mail_settings
from tests.harness.waiting import wait_for
from tests.harness.worker_process import wait_until_final

ANN, BOB = "ann@example.org", "bob@example.org"
FROM = "shop@example.org"


@pytest.fixture
def server():
    """A mail server that answers as the test says."""
    with MailServer() as server:
        yield server


@pytest.fixture
def queued(settings, server):
    """All mails of this process go through the queue, to the server."""
    for name, value in mail_settings(server.port).items():
        setattr(settings, name, value)
    settings.PGQUEUE = {"EMAIL": EMAIL}


@pytest.fixture
def start_mailer(queued, server, start_worker):
    """A factory of workers that send mails to the server."""

    def start(*arguments):
        return start_worker(
            *arguments, settings=mail_settings(server.port), pgqueue={"EMAIL": EMAIL}
        )

    return start


def send(*to, **kwargs):
    """Send a mail as projects do, and return the id of its job."""
    assert 1 == send_mail("Receipt", "Thanks!", FROM, to or [ANN], **kwargs)
    return Job.objects.latest("id").id


# In the caller's transaction ----------------------------------------------------------


def test_a_mail_is_rolled_back_with_the_data_that_it_is_about(transactional_db, queued):
    """And stored with it, by one that commits."""
    with transaction.atomic():
        send()
        transaction.set_rollback(True)
    assert 0 == Job.objects.count()

    with transaction.atomic():
        send()
    assert [deliver_mail.name] == [job.task for job in Job.objects.all()]


# What is kept of a mail ---------------------------------------------------------------


def delivered(server, message):
    """Return *message* as the server got it, and to whom."""
    assert 1 == message.send()
    assert {"succeeded": 1} == drain().statuses
    ((recipients, received),) = server.mails
    return recipients, received


def test_all_parts_of_a_mail_arrive(db, queued, server):
    """Headers, copies, both bodies, files, an inline image, and a mail in the mail."""
    message = EmailMultiAlternatives(
        "Grüße 🎉",
        "Danke schön, Änne",
        "Der Laden <shop@example.org>",
        [f"Ann <{ANN}>"],
        bcc=["hidden@example.org"],
        cc=[BOB],
        reply_to=["answers@example.org"],
        headers={"X-Order": "17", "List-Unsubscribe": "<https://shop.example/x>"},
    )
    message.attach_alternative("<p>Danke <img src='cid:logo'></p>", "text/html")
    message.attach("receipt.pdf", b"%PDF\x00\xff", "application/pdf")
    message.attach("rows.csv", "a;b\nü;2\n", "text/csv")
    message.attach(inline_image())
    message.attach(
        "old.eml", EmailMessage("Before", "Text", FROM, [ANN]), "message/rfc822"
    )

    recipients, received = delivered(server, message)

    assert [ANN, BOB, "hidden@example.org"] == recipients
    assert None is received["Bcc"]
    assert ("17", "<https://shop.example/x>", "answers@example.org", BOB) == (
        received["X-Order"],
        received["List-Unsubscribe"],
        received["Reply-To"],
        received["Cc"],
    )
    assert "Grüße 🎉" == str(make_header(decode_header(received["Subject"])))
    parts = [
        (part.get_content_type(), part.get_filename(), part.get_payload(decode=True))
        for part in received.walk()
        if not part.is_multipart()
    ]
    texts = [(kind, name, data.rstrip(b"\r\n")) for kind, name, data in parts]
    assert [
        ("text/plain", None, "Danke schön, Änne".encode()),
        ("text/html", None, b"<p>Danke <img src='cid:logo'></p>"),
        ("application/pdf", "receipt.pdf", b"%PDF\x00\xff"),
        ("text/csv", "rows.csv", "a;b\nü;2".encode()),
        ("image/png", None, b"\x89PNG\x00"),
        ("text/plain", None, b"Text"),
    ] == [(k, n, d.replace(b"\r\n", b"\n")) for k, n, d in texts]
    (image,) = (p for p in received.walk() if p.get_content_type() == "image/png")
    assert ("<logo>", "inline") == (image["Content-ID"], image["Content-Disposition"])


def inline_image(data=b"\x89PNG\x00"):
    if django.VERSION >= (6, 0):
        part = MIMEPart()
        part.set_content(data, "image", "png", disposition="inline", cid="<logo>")
        return part
    part = MIMEImage(data, "png")
    part["Content-ID"] = "<logo>"
    part["Content-Disposition"] = "inline"
    return part


def test_any_backend_may_send_it(db, queued, settings):
    """One that reads parts gets those that were given, and not a finished text."""
    goes_through(settings, locmem.EmailBackend)
    message = EmailMultiAlternatives("Hi", "Text", FROM, [ANN], bcc=[BOB])
    message.attach_alternative("<p>Text</p>", "text/html")
    message.attach("a.bin", b"\x00", "application/octet-stream")
    message.send()

    assert {"succeeded": 1} == drain().statuses
    (sent,) = mail.outbox
    assert ("Hi", "Text", FROM, [ANN], [BOB]) == (
        sent.subject,
        sent.body,
        sent.from_email,
        sent.to,
        sent.bcc,
    )
    assert (message.alternatives, message.attachments) == (
        sent.alternatives,
        sent.attachments,
    )


class Clumsy(BaseEmailBackend):
    """Sends, and then stumbles."""

    def send_messages(self, email_messages):
        return len(email_messages)

    def close(self):
        raise OSError("it was closed already")


def goes_through(settings, kind):
    """Let mails leave the queue by a backend of this module."""
    path = f"{kind.__module__}.{kind.__qualname__}"
    through = path
    if mailers() is not None:
        settings.MAILERS = {**settings.MAILERS, "own": {"BACKEND": path}}
        through = "own"
    settings.PGQUEUE = {"EMAIL": {"through": through}}


def test_a_mail_that_was_sent_stays_sent(db, queued, settings, caplog):
    """Whatever happens when the connection is closed."""
    goes_through(settings, Clumsy)
    send()

    assert {"succeeded": 1} == drain().statuses
    assert ["unclosed   mail connection error=OSError"] == [
        record.getMessage() for record in caplog.records
    ]


def test_what_cannot_be_stored_is_named(db, queued):
    """Before any SQL."""
    message = EmailMessage("Hi", "", FROM, [ANN])
    message.request = object()

    with pytest.raises(
        InvalidArgument, match=r"mail\.attributes\.request is a .*object"
    ):
        message.send()


def test_a_mail_that_is_too_large_names_both_sizes(db, queued, settings):
    """And what to do; nothing of a batch is stored."""
    settings.PGQUEUE = {"EMAIL": EMAIL, "PAYLOAD_BYTES_MAX": 10_000}
    message = EmailMessage("Hi", "", FROM, [ANN])
    message.attach("film.mp4", b"x" * 9_000, "video/mp4")

    with pytest.raises(
        PayloadTooLarge,
        match=r"a mail and its attachments take 12,\d{3} bytes .* is 10,000\. Send "
        r"a link to what is large, or raise PGQUEUE",
    ):
        message.send()


# What is refused, and in silence ------------------------------------------------------


def test_silence_is_kept_and_the_transaction_usable(
    db, queued, settings, caplog, monkeypatch
):
    """AdminEmailHandler must not fail because of the mail that it sends."""
    settings.PGQUEUE = {"EMAIL": EMAIL, "PAYLOAD_BYTES_MAX": 200}

    with caplog.at_level(logging.INFO), transaction.atomic():
        backend = EmailBackend(fail_silently=True)
        assert 0 == backend.send_messages([EmailMessage("Hi", "x" * 300, FROM, [ANN])])
        settings.PGQUEUE = {"EMAIL": EMAIL}
        assert 1 == backend.send_messages([EmailMessage("Hi", "x", FROM, [ANN])])

    assert [
        "unstored   task=django_pgqueue.deliver_mail mails=1 error=PayloadTooLarge"
    ] == [record.getMessage() for record in caplog.records]
    assert 1 == Job.objects.count()


def test_mails_that_would_come_back_are_refused(db, queued, settings):
    """Where they are stored, and where they would be sent."""
    through = "default" if mailers() is not None else EMAIL_BACKEND
    send()
    settings.PGQUEUE = {"EMAIL": {"through": through}}

    with pytest.raises(SettingsError, match="into the queue again"):
        send_mail("Receipt", "Thanks!", FROM, [ANN])
    (error,) = drain().errors
    assert "into the queue again" in str(error)


# By the server's answer ---------------------------------------------------------------


def test_a_worker_sends_a_mail(start_mailer, server):
    """Nothing of the project's declares its task; the result is the Message-ID."""
    start_mailer()

    job = send()

    assert "archive" == wait_until_final([job])[job].table
    ((recipients, received),) = server.mails
    assert [ANN] == recipients
    assert received["Message-ID"] == ArchivedJob.objects.get(pk=job).result


def test_a_4xx_and_a_cut_connection_are_tried_again(db, queued, server):
    """Under the same Message-ID, and with the same date."""
    server.answers = ["451 Later", "", "421 Closing"]

    send()

    assert {"retrying": 3, "succeeded": 1} == drain(retries=True).statuses
    assert 1 == len(server.mails)
    assert [server.mails[0][1]["Message-ID"]] * 4 == server.asked


def test_a_5xx_is_a_dead_letter_at_once(start_mailer, server):
    """With the answer, which may be about an address, as its error."""
    start_mailer()
    server.answers = ["554 5.7.1 Spam"]

    job = send()

    final = wait_until_final([job])[job]
    assert ("dead", "rejected", 1) == (final.table, final.state, final.attempt)
    assert "554 5.7.1 Spam" == DeadLetter.objects.get(pk=job).errors[-1]["message"]


def test_a_mail_whose_recipients_are_all_refused_is_dead(db, queued, server):
    """If for good; one of them 4xx, it is tried again."""
    server.refusals = {ANN: "550 No such mailbox", BOB: "550 Nor this"}
    send(ANN, BOB)
    assert {"dead": 1} == drain().statuses
    message = DeadLetter.objects.get().errors[-1]["message"]
    assert f"{ANN}: 550 No such mailbox; {BOB}: 550 Nor this" == message

    server.refusals = {ANN: "550 No such mailbox", BOB: "450 Full"}
    send(ANN, BOB)
    assert {"retrying": 1} == drain().statuses


def test_who_was_accepted_is_not_sent_to_again_for_who_was_not(start_mailer, server):
    """The refused get a job of their own, by whose answers it goes on."""
    start_mailer()
    server.refusals = {BOB: "550 No such mailbox"}

    job = send(ANN, BOB)

    assert "archive" == wait_until_final([job])[job].table
    wait_for(DeadLetter.objects.exists, what="the rest is dead")
    assert [[ANN]] == [recipients for recipients, _ in server.mails]
    letter = DeadLetter.objects.get()
    assert f"{BOB}: 550 No such mailbox" == letter.errors[-1]["message"]

    server.refusals = {}
    assert JobResult(letter.id).retry()
    wait_until_final([letter.id])
    assert [[ANN], [BOB]] == [recipients for recipients, _ in server.mails]
    assert 1 == len({received["Message-ID"] for _, received in server.mails})


def test_a_killed_worker_sends_a_mail_twice_at_most(start_mailer, server):
    """Killed while the server takes it: once more, under the same Message-ID."""
    worker = start_mailer()
    server.gate.clear()
    job = send()
    wait_for(lambda: server.asked, what="a mail is on its way")

    (child,) = worker.children()
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: len(server.asked) == 2, what="it is sent again")
    server.gate.set()

    wait_until_final([job])
    assert 2 == len(server.asked)
    assert 1 == len(set(server.asked))


def test_no_address_and_no_body_is_logged(start_mailer, server):
    """Of mails that were sent, refused, and tried again."""
    worker = start_mailer()
    server.refusals = {BOB: "550 No such mailbox", "eve@example.org": "450 Full"}

    later, *jobs = [send("eve@example.org"), send(ANN), send(BOB)]

    wait_until_final(jobs)
    wait_for(lambda: JobResult(later).refresh().status == "retrying")
    assert 0 == worker.stop()
    assert [] == worker.lines("example.org|Thanks|Receipt")
