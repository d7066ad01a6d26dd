"""Reminders: one for each address, spread over a day, once a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from io import StringIO
from unittest import mock, skipUnless

from django.core.management import call_command
from django.test import TestCase, TransactionTestCase

from django_pgqueue.models import Job
from django_pgqueue.testing import drain
from postoffice.models import EmailMessage, Status
from postoffice.pipelines import remind


def run(*arguments: str) -> str:
    """Return what the pipeline job has printed."""
    out = StringIO()
    call_command(
        "pgqueue_pipeline", "run", "reminders", *arguments, stdout=out, stderr=out
    )
    return out.getvalue()


class Reminding(TestCase):
    def test_a_reminder_is_a_mail(self) -> None:
        """
        It is accepted as any other.
        """
        remind.delay(address="ann@example.org", mails=1_000)
        drain("reminders")

        mail = EmailMessage.objects.get()
        self.assertEqual(["ann@example.org"], mail.to)
        self.assertEqual("You have had 1,000 mails from us", mail.subject)
        self.assertIsNotNone(mail.job)


@skipUnless(find_spec("pyspark"), "needs the extra [spark]")
class Planning(TransactionTestCase):
    def test_everybody_is_reminded_once(self) -> None:
        """
        At moments of the next 24 hours, with the number of their mails.
        """
        EmailMessage.objects.bulk_create(
            EmailMessage(
                subject="Receipt",
                to=["ann@example.org", f"c{n}@example.org"],
                body="",
                status=Status.SENT,
            )
            for n in range(100)
        )
        # Spark is quicker to start than it is to become quick.
        with mock.patch.dict("os.environ", JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1"):
            minute = datetime.now(UTC).replace(second=0, microsecond=0)
            told = run()

        self.assertIn("101 jobs", told)
        jobs = Job.objects.filter(queue="reminders", task=remind.name)
        mails = {job.kwargs["address"]: job.kwargs["mails"] for job in jobs}
        self.assertEqual(100, mails.pop("ann@example.org"))
        self.assertEqual({f"c{n}@example.org": 1 for n in range(100)}, mails)
        due = [job.run_after for job in jobs]
        self.assertEqual(101, len(due))
        self.assertLessEqual(minute, min(due))
        self.assertLess(max(due), datetime.now(UTC) + timedelta(hours=24))
        self.assertGreater(max(due) - min(due), timedelta(hours=20))
