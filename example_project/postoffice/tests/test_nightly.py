"""What the post office does by itself, in the morning and at night."""

from __future__ import annotations

from datetime import UTC, datetime

from django.core import mail
from django.test import TestCase, override_settings

from django_pgqueue.models import Job, Schedule
from django_pgqueue.testing import drain
from postoffice.acceptance import accept
from postoffice.drafts import Draft
from postoffice.models import EmailMessage, Status
from postoffice.nightly import digest

# Six o'clock in Berlin, on the day after clocks were put forward.
TICK = "2026-03-30T04:00:00+00:00"


@override_settings(EMAIL_BACKEND="django.core.mail.backends.locmem.EmailBackend")
class Digest(TestCase):
    """The digest of a day."""

    def make_mail(self, status: Status, at: datetime, error: str = "") -> None:
        (pk,) = accept([Draft("Receipt", ["ann@example.org"], [], [], "Hi")])
        EmailMessage.objects.filter(pk=pk).update(
            status=status, updated_at=at, error=error
        )
        Job.objects.all().delete()

    def test_it_is_about_the_day_before_its_tick(self) -> None:
        """Of that local day, however late the job runs, and of no other."""
        night, noon = (
            datetime(2026, 3, 28, 23, tzinfo=UTC),
            datetime(2026, 3, 29, 12, tzinfo=UTC),
        )
        self.make_mail(Status.SENT, night)
        self.make_mail(Status.SENT, noon)
        self.make_mail(Status.ERROR, noon, "550 No such user")
        self.make_mail(Status.SENT, datetime(2026, 3, 28, 22, 59, tzinfo=UTC))
        self.make_mail(Status.SENT, datetime(2026, 3, 29, 22, tzinfo=UTC))
        job = digest.delay()
        Job.objects.filter(pk=job.id).update(headers={"pgqueue.tick": TICK})
        self.assertEqual((1, 1), (drain("digests"), drain("mail")))
        self.assertEqual("2026-03-29", job.refresh().result)
        (sent,) = mail.outbox
        self.assertEqual("Post office on Sunday, 29 March 2026", sent.subject)
        self.assertIn("        2 sent\n", sent.body)
        self.assertIn("        1 error\n", sent.body)
        self.assertTrue(sent.body.endswith("Given up:\n        1 550 No such user\n"))

    def test_it_has_a_schedule(self) -> None:
        """After migrate, the database knows when it is due."""
        schedule = Schedule.objects.get(name="postoffice.nightly.digest")
        self.assertEqual("Europe/Berlin", schedule.tz)
        self.assertEqual("all(7)", schedule.catch_up)
