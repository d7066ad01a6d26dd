"""Reminders: one for each address, spread over a day."""

from __future__ import annotations

from datetime import timedelta

from django.test import TestCase

from django_pgqueue.models import Job
from django_pgqueue.testing import drain, freeze
from django_pgqueue.timetable.offset import offset
from postoffice.models import EmailMessage, Status
from postoffice.reminders import remind, remind_everybody

DAY = timedelta(hours=24)


def had_mails(*recipients: str, status: Status = Status.SENT) -> None:
    EmailMessage.objects.create(
        subject="Receipt", to=list(recipients), body="", status=status
    )


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

    def test_everybody_is_reminded_at_a_moment_of_the_day(self) -> None:
        """
        Of the address: the same tomorrow, and by the pipeline's job.
        """
        had_mails("ann@example.org", "bob@example.org")
        had_mails("ann@example.org")
        had_mails("eve@example.org", status=Status.ERROR)
        mails = {"ann@example.org": 2, "bob@example.org": 1}

        with freeze() as clock:
            for _ in range(2):
                midnight = clock.now
                job = remind_everybody.delay()
                drain("reminders")
                self.assertEqual(2, job.refresh().result)

                reminders = Job.objects.filter(task=remind.name)
                self.assertEqual(
                    mails,
                    {row.kwargs["address"]: row.kwargs["mails"] for row in reminders},
                )
                for row in reminders:
                    due = midnight + offset(remind.name, [row.kwargs["address"]], DAY)
                    self.assertEqual(due, row.run_after)

                clock.advance(DAY)
                self.assertEqual(2, drain("reminders"))
        self.assertEqual(4, EmailMessage.objects.filter(body__contains="Thank").count())
