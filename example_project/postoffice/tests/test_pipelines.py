"""Reminders by Spark: one for each address, spread over a day, once a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from io import StringIO
from unittest import mock, skipUnless

from django.core.management import call_command
from django.test import TransactionTestCase

from django_pgqueue.models import Job
from postoffice.models import EmailMessage, Status
from postoffice.reminders import remind


def run(*arguments: str) -> str:
    """Return what the pipeline job has printed."""
    out = StringIO()
    call_command(
        "pgqueue_pipeline", "run", "reminders", *arguments, stdout=out, stderr=out
    )
    return out.getvalue()


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
        due = [job.run_after for job in jobs if job.run_after is not None]
        self.assertEqual(101, len(due))
        self.assertLessEqual(minute, min(due))
        self.assertLess(max(due), datetime.now(UTC) + timedelta(hours=24))
        self.assertGreater(max(due) - min(due), timedelta(hours=20))
