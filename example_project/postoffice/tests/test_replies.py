"""What POST /messages/{id}/replies/ stores, and how often."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

from django.test import TestCase

from postoffice.acceptance import accept
from postoffice.drafts import Draft
from postoffice.models import Reply

REPLY = {"message_id": "<1@example.org>", "sender": "ann@example.org", "text": "Hi"}


class Replies(TestCase):
    def setUp(self) -> None:
        mail = Draft("Receipt", ["ann@example.org"], [], [], "Thank you.")
        self.first, self.second = accept([mail, mail])

    def post(self, posted: Any, email_id: int = 0) -> Any:
        return self.client.post(
            f"/messages/{email_id or self.first}/replies/",
            json.dumps(posted),
            content_type="application/json",
        )

    def test_a_reply_that_is_told_again_is_stored_once(self) -> None:
        """
        201, then 200; a mail shows it once. Another Message-ID is another reply.
        """
        answers = [self.post(REPLY) for _ in range(3)]
        self.assertEqual([201, 200, 200], [each.status_code for each in answers])
        self.assertEqual([True, False, False], [a.json()["is_new"] for a in answers])
        self.post(REPLY | {"message_id": "<" + "2" * 900 + "@example.org>"})

        shown = self.client.get(f"/messages/{self.first}/").json()["replies"]
        self.assertEqual(["Hi", "Hi"], [each["text"] for each in shown])

    def test_one_that_could_not_be_stored_is_new_when_it_is_told_again(self) -> None:
        """
        What fails after it was noted takes the note back with it.
        """
        with (
            mock.patch.object(Reply.objects, "create", side_effect=OSError("full")),
            self.assertRaises(OSError),
        ):
            self.post(REPLY)
        self.assertEqual(201, self.post(REPLY).status_code)

    def test_what_is_wrong_is_told_and_noted_nowhere(self) -> None:
        """
        400, 404 or 415; a reply that is told rightly then is new.
        """
        wrong: list[Any] = [[], {}, REPLY | {"text": ""}, REPLY | {"x": 1}]
        for posted in [*wrong, REPLY | {"sender": 7}]:
            self.assertEqual(400, self.post(posted).status_code, posted)
        self.assertEqual(400, self.post(REPLY | {"text": "a\x00"}).status_code)
        self.assertEqual(404, self.post(REPLY, self.second + 1).status_code)
        url = f"/messages/{self.first}/replies/"
        self.assertEqual(415, self.client.post(url, {"text": "Hi"}).status_code)
        self.assertEqual(201, self.post(REPLY).status_code)
