"""How mails are sent, to a real SMTP server, and what becomes of those that are not."""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from config.mail import mail_settings, through
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, TestCase, override_settings
from django.urls import path

from django_pgqueue import Reject
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.queues.dead_letters import redrive
from django_pgqueue.signals import job_dead, worker_started
from django_pgqueue.testing import crash_once, drain, freeze, redeliver
from postoffice.acceptance import accept
from postoffice.drafts import Draft
from postoffice.models import EmailMessage, Status
from postoffice.tasks import MESSAGE_ID_DOMAIN, send_email
from postoffice.tests.mail_server import MailServer

ANN, BOB, EVE = "ann@example.org", "bob@example.org", "eve@example.org"


def accept_mail(**fields: Any) -> EmailMessage:
    """Accept one mail and return its row."""
    usual = Draft(subject="Receipt", to=[ANN], cc=[], bcc=[], body="Hi")
    (email_id,) = accept([replace(usual, **fields)])
    return EmailMessage.objects.get(pk=email_id)


class MailTest(TestCase):
    """Its mail goes to a server of its own."""

    def setUp(self) -> None:
        self.server = self.enterContext(MailServer())
        self.enterContext(self.mail_goes_to(self.server.port))

    def mail_goes_to(self, port: int, timeout: float = 10) -> override_settings:
        url = f"smtp://127.0.0.1:{port}"
        mails = mail_settings(url, timeout=timeout)
        queue = {**settings.PGQUEUE, "EMAIL": {"through": through(mails)}}
        return override_settings(**mails, PGQUEUE=queue)

    def assert_is(self, mail: EmailMessage, status: Status, error: str = "") -> None:
        mail.refresh_from_db()
        self.assertEqual((status, error), (mail.status, mail.error))


class Sending(MailTest):
    """The way of a mail through the mail server."""

    def test_a_mail_is_sent_once_to_everybody(self) -> None:
        """
        to, cc and bcc get it, bcc unseen; its Message-ID is the idempotency key.
        """
        mail = accept_mail(subject="Grüße 🔑", cc=[BOB], bcc=[EVE], body="Schöne\n")
        self.assertEqual(1, drain("mail"))
        self.assertEqual(0, drain("mail"))

        self.assert_is(mail, Status.SENT)
        ((recipients, sent),) = self.server.mails
        self.assertEqual([ANN, BOB, EVE], recipients)
        self.assertEqual((ANN, BOB, None), (sent["To"], sent["Cc"], sent["Bcc"]))
        job, domain = sent["Message-ID"].strip("<>").split("@")
        self.assertEqual(MESSAGE_ID_DOMAIN, domain)
        self.assertTrue(job.endswith(f"-{mail.job}"), job)
        self.assertEqual("succeeded", ArchivedJob.objects.get(pk=mail.job).state)

    def test_4xx_is_tried_again(self) -> None:
        """
        The mail waits, with the server's answer in its row, and is sent later.
        """
        self.server.refusals[ANN] = "451 4.7.1 Later"
        with freeze() as clock:
            mail = accept_mail()
            self.assertEqual({"retrying": 1}, drain().statuses)
            self.assert_is(mail, Status.SCHEDULED, f"451 4.7.1 Later ({ANN})")

            self.server.refusals.clear()
            self.assertEqual(0, drain("mail"))
            clock.advance("1s")  # The longest that the first retry waits.
            self.assertEqual(1, drain("mail"))
        self.assert_is(mail, Status.SENT)
        self.assertEqual(1, len(self.server.mails))

    def test_a_mail_that_is_sent_twice_can_be_recognised(self) -> None:
        """
        The worker dies after the 250, which nobody knows of then: the same Message-ID.
        """
        mail = accept_mail()
        crash_once(mail.job, at="after:postoffice.tasks.deliver")
        self.assert_is(mail, Status.SENT)
        first, second = (sent["Message-ID"] for _, sent in self.server.mails)
        self.assertEqual(first, second)

    def test_5xx_is_given_up_at_once(self) -> None:
        """
        The job is a dead letter, rejected; the mail is in error, with the answer.
        """
        self.server.refusals[ANN] = "550 5.1.1 No such mailbox"
        mail = accept_mail()
        drain()
        self.assert_is(
            mail, Status.ERROR, f"rejected: 550 5.1.1 No such mailbox ({ANN})"
        )
        self.assertEqual("rejected", DeadLetter.objects.get(pk=mail.job).reason)

    def test_5xx_to_the_text_is_given_up_too(self) -> None:
        """
        It does not matter at which step the server says no.
        """
        self.server.answer = "554 5.6.0 Looks like spam"
        mail = accept_mail()
        drain()
        self.assert_is(mail, Status.ERROR, "rejected: 554 5.6.0 Looks like spam")

    def test_a_redriven_mail_is_sent(self) -> None:
        """
        Once the mailbox exists, the dead letter can go back to its queue.
        """
        self.server.refusals[ANN] = "550 5.1.1 No such mailbox"
        mail = accept_mail()
        drain()
        self.server.refusals.clear()
        with connection.cursor() as cursor:
            redrive(cursor, [mail.job])
        drain()
        self.assert_is(mail, Status.SENT)

    def test_one_refused_recipient_stops_the_mail(self) -> None:
        """
        Nobody gets what not everybody gets: no half delivery, no repeat by a retry.
        """
        for answer, status in (("451 Later", "scheduled"), ("550 Never", "error")):
            with self.subTest(answer):
                self.server.refusals[BOB] = answer
                mail = accept_mail(cc=[BOB])
                drain()
                mail.refresh_from_db()
                self.assertEqual(status, mail.status)
                self.assertEqual([], self.server.mails)

    def test_attempts_run_out(self) -> None:
        """
        The last failure makes a dead letter, and the mail says why.
        """
        self.server.answer = "452 Mailbox full"
        mail = accept_mail()
        Job.objects.update(max_attempts=2)
        drain(retries=True)
        self.assert_is(mail, Status.ERROR, "exhausted: 452 Mailbox full")
        self.assertEqual("exhausted", DeadLetter.objects.get(pk=mail.job).reason)

    def test_a_server_that_is_down_is_tried_again(self) -> None:
        """
        Nobody listens: the mail waits.
        """
        with socket.socket() as bound:  # Bound, and not listening.
            bound.bind(("127.0.0.1", 0))
            with self.mail_goes_to(bound.getsockname()[1]):
                mail = accept_mail()
                drain()
        mail.refresh_from_db()
        self.assertEqual(Status.SCHEDULED, mail.status)
        self.assertIn("ConnectionRefusedError", mail.error)

    def test_a_mute_server_is_left_before_the_task_times_out(self) -> None:
        """
        MAIL_TIMEOUT, to connect and for each answer, is below the task's own.
        """
        timeout = send_email.options.timeout
        assert timeout is not None
        self.assertLess(timedelta(seconds=settings.MAIL_TIMEOUT * 2), timeout)

        with socket.create_server(("127.0.0.1", 0)) as mute:
            port = mute.getsockname()[1]
            with self.mail_goes_to(port, timeout=0.1):
                mail = accept_mail()
                drain()
        mail.refresh_from_db()
        self.assertEqual(Status.SCHEDULED, mail.status)
        self.assertIn("timed out", mail.error)

    def test_a_deleted_mail_is_rejected(self) -> None:
        """
        A job whose row is gone can never succeed.
        """
        mail = accept_mail()
        EmailMessage.objects.all().delete()
        drain()
        self.assertEqual("rejected", DeadLetter.objects.get(pk=mail.job).reason)


class Guards(MailTest):
    """What a crash, or a worker that was taken for dead, can do to a row."""

    def test_what_was_sent_is_not_sent_again(self) -> None:
        """
        The worker dies between the update to sent and the ack: one duplicate, noticed.
        """
        mail = accept_mail()
        with self.assertLogs("postoffice.models", "WARNING"):
            self.assertEqual("was sent before", crash_once(mail.job))
        self.assert_is(mail, Status.SENT)
        self.assertEqual(1, mail.duplicates)
        self.assertEqual(1, len(self.server.mails))

    def test_what_may_have_been_sent_is_sent(self) -> None:
        """
        The worker dies while the row says claimed: at least once, so it is sent.
        """
        mail = accept_mail()
        crash_once(mail.job, at="before:postoffice.tasks.deliver")
        self.assert_is(mail, Status.SENT)
        self.assertEqual(0, mail.duplicates)
        self.assertEqual(1, len(self.server.mails))

    def test_a_job_that_comes_again_and_again_sends_one_mail(self) -> None:
        """
        Each time after the first it is told no, which is counted.
        """
        mail = accept_mail()
        with self.assertLogs("postoffice.models", "WARNING"):
            said = redeliver(mail.job, times=4)
        self.assertEqual(["sent", *["was sent before"] * 3], said)
        self.assert_is(mail, Status.SENT)
        self.assertEqual(3, mail.duplicates)
        self.assertEqual(1, len(self.server.mails))

    def test_a_worker_that_lost_its_claim_moves_nothing(self) -> None:
        """
        It was taken for dead, and another one claimed the row: each no is counted.
        """
        mail = accept_mail()
        slept, works = uuid4(), uuid4()
        mails = EmailMessage.objects
        self.assertTrue(mails.claim(mail.pk, slept))
        self.assertTrue(mails.claim(mail.pk, works))
        with self.assertLogs("postoffice.models", "WARNING"):
            self.assertFalse(mails.mark_sent(mail.pk, slept))
            self.assertFalse(mails.postpone(mail.pk, slept, "late"))
        self.assert_is(mail, Status.CLAIMED)
        self.assertTrue(mails.mark_sent(mail.pk, works))
        with self.assertLogs("postoffice.models", "WARNING"):
            self.assertFalse(mails.mark_error(mail.pk, "late"))
        self.assert_is(mail, Status.SENT)
        self.assertEqual(3, mail.duplicates)

    def test_a_job_that_kills_its_workers_ends_its_mail(self) -> None:
        """
        Whatever made the dead letter, the mail is in error with the reason.
        """
        mail = accept_mail()
        EmailMessage.objects.claim(mail.pk, uuid4())
        Job.objects.update(crashes=3, runs_alone=True)
        drain()
        self.assertEqual("worker_lost", DeadLetter.objects.get(pk=mail.job).reason)
        self.assert_is(mail, Status.ERROR, "worker_lost")

    def test_a_worker_ends_what_a_dead_one_could_not(self) -> None:
        """
        One died between the dead letter and the mail's row: the next makes up for it.
        """
        self.server.refusals[ANN] = "550 5.1.1 No such mailbox"
        mail = accept_mail()
        drain()
        EmailMessage.objects.update(status=Status.CLAIMED, error="")
        worker_started.send(None, worker="next")
        self.assert_is(
            mail, Status.ERROR, f"rejected: 550 5.1.1 No such mailbox ({ANN})"
        )

    def test_dead_jobs_of_other_tasks_change_no_mail(self) -> None:
        """
        The receiver hears of all dead jobs and heeds its own.
        """
        mail = accept_mail()
        job = Job.objects.get(pk=mail.job)
        job.task = "another"
        job_dead.send(job.task, job=job, reason="rejected", error=Reject("no"))
        self.assert_is(mail, Status.SCHEDULED)


def fail(request: HttpRequest) -> HttpResponse:
    """A view of a bad day."""
    raise RuntimeError("the shelf is empty")


urlpatterns = [path("fail/", fail)]


@override_settings(ROOT_URLCONF=__name__)
class Errors(MailTest):
    """Mails of Django about errors of views."""

    def test_the_mail_about_an_error_is_a_job(self) -> None:
        """The request has stored it, and a worker sends it to the postmasters."""
        visitor = Client(raise_request_exception=False)
        self.assertEqual(500, visitor.get("/fail/").status_code)
        self.assertEqual([], self.server.mails)
        self.assertEqual({"succeeded": 1}, drain().statuses)
        ((recipients, sent),) = self.server.mails
        self.assertEqual(settings.POSTMASTERS, recipients)
        self.assertIn("Internal Server Error: /fail/", str(sent["Subject"]))
