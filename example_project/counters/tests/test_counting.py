"""What the post office tells, and how it is counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import date
from uuid import uuid4

from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from postoffice.acceptance import accept
from postoffice.drafts import Draft
from postoffice.models import EmailMessage

from counters.models import MailCount, MailTotal
from counters.tasks import add_up, count_sent
from django_pgqueue import Message
from django_pgqueue.models import Job
from django_pgqueue.models import Message as Stored
from django_pgqueue.testing import crash_once, drain

DAY = date(2026, 11, 22)


def finish(to: str, *, sent: bool = True) -> None:
    """Accept a mail and write down that it was sent, or given up."""
    (pk,) = accept([Draft("Receipt", [to], [], [], "Hi")])
    Job.objects.filter(queue="mail").delete()
    claim = uuid4()
    EmailMessage.objects.claim(pk, claim)
    if sent:
        EmailMessage.objects.mark_sent(pk, claim)
    else:
        EmailMessage.objects.mark_error(pk, "550")


def counted() -> list[tuple[str, int, int]]:
    rows = MailCount.objects.order_by("domain")
    return list(rows.values_list("domain", "sent", "failed"))


class Counting(TestCase):
    """From the outcome of a mail to the page."""

    def test_outcomes_are_counted_by_domain(self) -> None:
        """
        A job for each message; the page shows the sums.
        """
        finish("ann@Example.org")
        finish("bob@example.org")
        finish("eve@example.com", sent=False)
        self.assertEqual(3, drain("counters"))
        self.assertEqual([("example.com", 0, 1), ("example.org", 2, 0)], counted())
        page = self.client.get("/counters/")
        self.assertContains(page, "<b>2</b> sent by jobs", html=False)
        self.assertContains(page, "example.com")

    def test_a_message_tells_no_address(self) -> None:
        """
        Only what a counter needs, under the key of its mail.
        """
        finish("ann@example.org")
        message = Stored.objects.get(name__startswith="mail.")
        mail = EmailMessage.objects.get()
        self.assertEqual(("mail.sent", str(mail.pk)), (message.name, message.key))
        self.assertEqual(
            {"id": mail.pk, "domain": "example.org", "recipients": 1}, message.payload
        )

    def test_an_outcome_that_rolls_back_is_not_told(self) -> None:
        """
        Row, message and job are one transaction.
        """
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            finish("ann@example.org")
            raise ZeroDivisionError
        self.assertEqual((0, 0), (Stored.objects.count(), Job.objects.count()))

    def test_what_is_not_news_is_not_told(self) -> None:
        """
        A worker that comes too late moves no row and publishes nothing.
        """
        finish("ann@example.org")
        mail = EmailMessage.objects.get()
        with self.assertLogs("postoffice.models", "WARNING"):
            EmailMessage.objects.mark_sent(mail.pk, uuid4())
        self.assertEqual(1, Stored.objects.filter(name__startswith="mail.").count())

    def test_a_message_that_is_delivered_twice_counts_once(self) -> None:
        """
        The worker dies before the ack: the count went with it.
        """
        finish("ann@example.org")
        crash_once(Job.objects.get().pk)
        self.assertEqual([("example.org", 1, 0)], counted())

    def test_a_handler_is_a_function(self) -> None:
        """
        Called with messages of one's own, it needs no queue and no log.
        """
        messages = [
            Message(id=n, topic="mail", name=name, payload={})
            for n, name in enumerate(["mail.sent", "mail.failed", "mail.sent"], start=1)
        ]
        add_up(messages)
        add_up(messages[:1])
        totals = dict(MailTotal.objects.values_list("name", "mails"))
        self.assertEqual({"mail.sent": 3, "mail.failed": 1}, totals)
        self.assertEqual("counters.tasks.count_sent", count_sent.name)


class CountingAtOnce(TransactionTestCase):
    """Several that count in the same row."""

    def test_nothing_is_lost_between_counters(self) -> None:
        """
        Whether the row is there or not.
        """

        def add(_: int) -> None:
            try:
                MailCount.objects.add(DAY, "example.org", sent=1)
            finally:
                connection.close()

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(add, range(20)))
        self.assertEqual([("example.org", 20, 0)], counted())
