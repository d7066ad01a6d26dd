"""What POST /messages/ accepts and what it refuses."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

from django.db import transaction
from django.test import TestCase, override_settings

from django_pgqueue.testing import assert_enqueued, assert_not_enqueued, capture
from postoffice.acceptance import accept
from postoffice.drafts import BATCH_MAX, BODY_MAX, RECIPIENTS_MAX, Draft
from postoffice.models import SUBJECT_MAX, EmailMessage, Status
from postoffice.tasks import send_email

MAIL = {"subject": "Receipt", "to": ["ann@example.org"], "body": "Thank you."}


class Posting(TestCase):
    def post(self, posted: Any, content_type: str = "application/json") -> Any:
        body = posted if isinstance(posted, (bytes, str)) else json.dumps(posted)
        return self.client.post("/messages/", body, content_type=content_type)

    def assert_refused(
        self,
        posted: Any,
        *problems: tuple[int | None, str | None],
        status: int = 400,
        content_type: str = "application/json",
    ) -> Any:
        """The answer names these (index, field), and nothing was stored."""
        response = self.post(posted, content_type)
        self.assertEqual(status, response.status_code, response.content)
        found = [(e["index"], e["field"]) for e in response.json()["errors"]]
        self.assertEqual(list(problems), found, response.content)
        self.assertEqual(0, EmailMessage.objects.count())
        assert_not_enqueued()
        return response


class AcceptedMails(Posting):
    def test_one_mail_is_stored_with_its_job(self) -> None:
        """
        The answer is 202 with the id; the row is scheduled, and its job carries it.
        """
        mail = MAIL | {"cc": ["bob@example.org"], "bcc": ["eve@example.org"]}
        response = self.post(mail)

        self.assertEqual(202, response.status_code)
        (email_id,) = response.json()["ids"]
        self.assertEqual(f"/messages/{email_id}/", response["Location"])
        stored = EmailMessage.objects.get(pk=email_id)
        self.assertEqual(Status.SCHEDULED, stored.status)
        self.assertEqual(
            ["ann@example.org", "bob@example.org", "eve@example.org"],
            stored.recipients,
        )
        (job,) = assert_enqueued(send_email, email_id, queue="mail", count=1)
        self.assertEqual(job.id, stored.job)

    def test_a_batch_is_accepted_in_its_order(self) -> None:
        """
        The ids come in the order of the batch, and each mail has a job of its own.
        """
        batch = [MAIL | {"subject": f"Receipt {n}"} for n in range(BATCH_MAX)]
        with capture() as jobs:
            ids = self.post(batch).json()["ids"]

        stored = EmailMessage.objects.in_bulk(ids)
        self.assertEqual(
            [mail["subject"] for mail in batch], [stored[pk].subject for pk in ids]
        )
        self.assertEqual(
            {(job.id, job.args[0]) for job in jobs},
            {(stored[pk].job, pk) for pk in ids},
        )

    def test_one_address_may_stand_without_a_list(self) -> None:
        """
        "to": "ann@example.org" means ["ann@example.org"].
        """
        (email_id,) = self.post(MAIL | {"to": "ann@example.org"}).json()["ids"]
        self.assertEqual(["ann@example.org"], EmailMessage.objects.get(pk=email_id).to)

    def test_mails_and_jobs_roll_back_together(self) -> None:
        """
        If jobs cannot be stored, neither are mails; if the caller rolls back, neither.
        """
        drafts = [Draft("Receipt", ["ann@example.org"], [], [], "Thank you.")]
        with (
            mock.patch.object(type(send_email), "bulk", side_effect=OSError),
            self.assertRaises(OSError),
        ):
            accept(drafts)
        self.assertEqual(0, EmailMessage.objects.count())

        with self.assertRaises(InterruptedError), transaction.atomic():
            accept(drafts)
            assert_enqueued(send_email)
            raise InterruptedError
        self.assertEqual(0, EmailMessage.objects.count())
        assert_not_enqueued()


class RefusedMails(Posting):
    def test_what_is_not_json_is_refused(self) -> None:
        """
        Broken text, wrong encodings, endless nesting and huge numbers are all 400.
        """
        for body in (
            b" ",
            b"{",
            b"\xff\xfe\xfd",
            b"[" * 100_000,
            b"9" * 10_000,
            b'{"subject": "a", "subject": "b"}',
        ):
            with self.subTest(body[:20]):
                self.assert_refused(body, (None, None))

    def test_only_json_is_read(self) -> None:
        """
        A form, which any web page could post, is 415.
        """
        self.assert_refused(
            "subject=a", (None, None), status=415, content_type="text/plain"
        )

    def test_a_mail_or_a_batch_is_needed(self) -> None:
        """
        An empty or too large batch is refused as a whole.
        """
        for posted in (5, "mail", None, True, [], [MAIL] * (BATCH_MAX + 1)):
            with self.subTest(str(posted)[:20]):
                self.assert_refused(posted, (None, None))

    def test_one_wrong_mail_refuses_its_batch(self) -> None:
        """
        Errors name the place in the batch and the field; the good ones are not stored.
        """
        self.assert_refused(
            [MAIL, MAIL | {"subject": 5, "cc": ["ann"]}, 7, {}],
            (1, "subject"),
            (1, "cc[0]"),
            (2, None),
            (3, "subject"),
            (3, "to"),
            (3, "body"),
        )

    def test_wrong_values_are_refused_by_field(self) -> None:
        """
        Types, emptiness, lengths, line breaks in headers, and text no mail can carry.
        """
        for field, value in (
            ("subject", None),
            ("subject", 5),
            ("subject", ["a"]),
            ("subject", "  "),
            ("subject", "a" * (SUBJECT_MAX + 1)),
            ("subject", "a\nBcc: eve@example.org"),
            ("subject", "a\r\nb"),
            ("subject", "a\x00b"),
            ("subject", "a\u2028b"),
            ("subject", "\ud800"),
            ("body", None),
            ("body", ""),
            ("body", {"html": "a"}),
            ("body", "a\x00b"),
            ("body", "a\udfffb"),
            ("body", "a" * (BODY_MAX + 1)),
            ("to", []),
            ("to", {}),
            ("to", 5),
            ("to", None),
            ("to[0]", [5]),
            ("to[0]", [["ann@example.org"]]),
            ("to[0]", [""]),
            ("to[0]", ["ann"]),
            ("to[0]", ["ann@example.org\nBcc: eve@example.org"]),
            ("to[0]", ["ann@example.org\n"]),
            ("to[0]", ["ann@example.org, bob@example.org"]),
            ("to[0]", ["Ann <ann@example.org>"]),
            ("to[0]", ["änn@example.org"]),
            ("to[0]", ["ann@bücher.example"]),
            ("to[0]", ['"ann bob"@example.org']),
            ("to[0]", ["a" * 64 + "@" + "b" * 63 + ".c" * 70 + ".org"]),
            ("cc[1]", ["bob@example.org", "BOB@example.org"]),
            ("bcc[0]", ["ann@example.org"]),
            ("to", [f"ann{n}@example.org" for n in range(RECIPIENTS_MAX + 1)]),
            ("boddy", "a"),
        ):
            with self.subTest(field=field, value=str(value)[:30]):
                name = field.partition("[")[0]
                self.assert_refused(MAIL | {name: value}, (None, field))

    @override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=100)
    def test_a_request_that_is_too_large_is_refused(self) -> None:
        """
        Beyond DATA_UPLOAD_MAX_MEMORY_SIZE the answer is 413.
        """
        self.assert_refused(MAIL | {"body": "a" * 200}, (None, None), status=413)

    def test_other_methods_are_not_allowed(self) -> None:
        """
        405 names the methods that are.
        """
        for url, allowed in (
            ("/messages/", "GET, POST, HEAD, OPTIONS"),
            ("/messages/1/", "GET, HEAD"),
            ("/", "GET, HEAD"),
            ("/health/", "GET, HEAD"),
        ):
            response = self.client.put(url)
            self.assertEqual((405, allowed), (response.status_code, response["Allow"]))
