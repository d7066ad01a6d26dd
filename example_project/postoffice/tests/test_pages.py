"""What the pages and the JSON behind them show."""

from __future__ import annotations

from uuid import uuid4

from django.core.cache import cache
from django.test import TestCase

from postoffice.acceptance import accept
from postoffice.drafts import Draft
from postoffice.models import EmailMessage


def accept_mails(count: int, subject: str = "Receipt") -> list[int]:
    return accept([Draft(subject, ["ann@example.org"], [], [], "Hi")] * count)


class Pages(TestCase):
    def setUp(self) -> None:
        cache.clear()

    def test_one_mail_is_shown_with_its_status(self) -> None:
        """
        GET /messages/{id}/ tells all of it; an unknown id, however large, is 404.
        """
        (email_id,) = accept_mails(1)
        shown = self.client.get(f"/messages/{email_id}/").json()
        self.assertEqual(
            (email_id, "scheduled", "Receipt", ["ann@example.org"], "Hi", ""),
            tuple(
                shown[key] for key in ("id", "status", "subject", "to", "body", "error")
            ),
        )
        for unknown in (email_id + 1, 2**63, 10**40, "9" * 5_000):
            response = self.client.get(f"/messages/{unknown}/")
            self.assertEqual(404, response.status_code)

    def test_pages_start_at_an_id(self) -> None:
        """
        Newest first; `next` leads through all mails once, new ones shift nothing.
        """
        ids = accept_mails(5)
        seen, before = [], ""
        while True:
            page = self.client.get(f"/messages/?limit=2{before}").json()
            seen += [mail["id"] for mail in page["messages"]]
            if page["next"] is None:
                break
            before = f"&before={page['next']}"
            accept_mails(1)
        self.assertEqual(ids[::-1], seen)

    def test_pages_are_filtered_by_status(self) -> None:
        """
        ?status= shows one status; the counts are those of all mails.
        """
        sent, _ = accept_mails(2)
        claim = uuid4()
        EmailMessage.objects.claim(sent, claim)
        EmailMessage.objects.mark_sent(sent, claim)
        shown = self.client.get("/messages/?status=sent").json()
        self.assertEqual([sent], [mail["id"] for mail in shown["messages"]])
        self.assertEqual(
            {"scheduled": 1, "claimed": 0, "sent": 1, "error": 0, "duplicates": 0},
            shown["counts"],
        )
        self.assertContains(self.client.get("/?status=sent"), f"/messages/{sent}/")

    def test_a_wrong_query_is_refused(self) -> None:
        """
        400 names the parameter.
        """
        for parameter, value in (
            ("before", "a"),
            ("before", "0"),
            ("before", str(2**63)),
            ("before", "²"),
            ("limit", "1000000"),
            ("limit", "-1"),
            ("status", "nope"),
        ):
            with self.subTest(parameter=parameter, value=value):
                query = {parameter: value}
                response = self.client.get("/messages/", query)
                self.assertEqual(400, response.status_code)
                self.assertEqual(parameter, response.json()["errors"][0]["field"])
                self.assertEqual(400, self.client.get("/", query).status_code)

    def test_text_of_strangers_is_escaped(self) -> None:
        """
        A subject cannot put HTML into the page.
        """
        accept_mails(1, "<script>alert(1)</script>")
        response = self.client.get("/")
        self.assertContains(response, "&lt;script&gt;alert(1)&lt;/script&gt;")
        self.assertNotContains(response, "<script>alert")

    def test_health_is_told_without_a_worker(self) -> None:
        """
        Mails are accepted without a worker, so the answer is 200, and says so.
        """
        accept_mails(1)
        response = self.client.get("/health/")
        self.assertEqual(200, response.status_code)
        self.assertEqual(
            ("no worker", 0, 1, 1),
            tuple(
                response.json()[key]
                for key in ("status", "workers", "jobs", "scheduled")
            ),
        )
