"""Every change of a mail's status is noted, whoever makes it."""

from __future__ import annotations

from uuid import uuid4

from django.contrib.auth.models import User
from django.db import connection
from django.test import TestCase

from django_pgqueue import Message, capture_actor
from django_pgqueue.models import Message as Stored
from postoffice.acceptance import accept
from postoffice.audit import note_changes
from postoffice.drafts import Draft
from postoffice.models import EmailMessage, MailChange


class Audit(TestCase):
    """From a change of the row to the page of the mail."""

    def test_changes_of_the_status_are_noted(self) -> None:
        """
        Those of the ORM and of SQL; not those of other columns.
        """
        (pk,) = accept([Draft("Receipt", ["ann@example.org"], [], [], "Hi")])
        claim = uuid4()
        with capture_actor("worker"):
            EmailMessage.objects.claim(pk, claim)
        EmailMessage.objects.update(duplicates=1)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE postoffice_emailmessage SET status = 'error', error = 'by hand'"
            )
        note_changes(
            [
                Message(
                    id=each.id,
                    topic="mailaudit",
                    name=each.name,
                    payload=each.payload,
                    headers=each.headers,
                    published_at=each.published_at,
                )
                for each in Stored.objects.order_by("id")
            ]
        )

        self.assertEqual(
            [
                (pk, "scheduled", "claimed", "", "worker"),
                (pk, "claimed", "error", "by hand", ""),
            ],
            list(
                MailChange.objects.order_by("id").values_list(
                    "mail", "before", "after", "error", "actor"
                )
            ),
        )
        self.client.force_login(User.objects.create_superuser("anna"))
        page = self.client.get(f"/admin/postoffice/emailmessage/{pk}/change/")
        self.assertContains(page, "by hand")
        self.assertContains(page, "worker")
