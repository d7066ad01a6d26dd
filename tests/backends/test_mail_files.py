"""Large files of mails: kept once beside the jobs, and in the mail that is sent."""

from __future__ import annotations

import os

from django.core.mail import EmailMessage

from django_pgqueue.backends.email import EmailBackend
from django_pgqueue.backends.mail_connections import store_mails
from django_pgqueue.models import DeadLetter, Job, MailFile, MailFileUse
from django_pgqueue.testing import drain
from tests.backends.test_email import ANN, BOB, FROM, queued, server

__all__ = ["queued", "server"]

FILM = os.urandom(1_100_000)


def with_file(content=FILM, *to, kind=EmailMessage, name="film.mp4"):
    message = kind("Hi", "Text", FROM, list(to) or [ANN])
    message.attach(name, content, "text/csv" if isinstance(content, str) else None)
    return message


def files_of(received):
    return [
        (part.get_filename(), part.get_payload(decode=True))
        for part in received.walk()
        if part.get_filename()
    ]


def test_a_file_over_the_limit_of_payloads_is_kept_once(db, queued, server):
    """Of a hundred mails, one row; each arrives with it, and the jobs are small."""
    count = 3
    messages = [with_file(FILM, f"{n}@example.org") for n in range(count)]
    assert count == EmailBackend().send_messages(messages)
    with_file(bytes(bytearray(FILM))).send()

    assert (1, count + 1) == (MailFile.objects.count(), MailFileUse.objects.count())
    part = Job.objects.first().kwargs["mail"]["attachments"][0]
    assert {"file": MailFile.objects.get().digest, "bytes": len(FILM)} == part[
        "content"
    ]
    assert {"succeeded": count + 1} == drain().statuses
    assert [[("film.mp4", FILM)]] * (count + 1) == [
        files_of(received) for _, received in server.mails
    ]


def test_what_is_stored_again_has_the_file_too(db, queued, server):
    """The job of recipients who were refused, and a mail by its reference."""
    server.refusals = {BOB: "550 No such mailbox"}
    with_file(FILM, ANN, BOB).send()
    mail = Job.objects.get().kwargs["mail"]

    assert {"succeeded": 1, "dead": 1} == drain().statuses
    store_mails([mail])

    jobs = {DeadLetter.objects.get().pk, Job.objects.get().pk}
    assert jobs < {*MailFileUse.objects.values_list("job_id", flat=True)}
    server.refusals = {}
    assert {"succeeded": 1} == drain().statuses
    assert 1 == MailFile.objects.count()


def test_a_mail_whose_file_is_gone_is_a_dead_letter(db, queued, server):
    """As where somebody has deleted it: it is not sent without."""
    with_file().send()
    digest = MailFile.objects.get().digest
    MailFile.objects.all().delete()

    assert {"dead": 1} == drain().statuses
    message = DeadLetter.objects.get().errors[-1]["message"]
    assert f"the file {digest} of the mail is gone" == message
    assert [] == server.mails
