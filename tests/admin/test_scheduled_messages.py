"""What is published later, and what has come in: listed, hidden, taken back."""

from __future__ import annotations

from html import unescape

import pytest
from django.contrib.admin.models import DELETION, LogEntry

from django_pgqueue.models import ScheduledMessage
from tests.log.rows import make_scheduled

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/scheduledmessage/"


def listed(client, url):
    return [row.pk for row in client.get(url).context["cl"].result_list]


@pytest.mark.parametrize("is_allowed", [True, False])
def test_what_it_carries_needs_the_permission_of_payloads(staff, is_allowed):
    """Its key and the reason of a failure, too; what REDACT names is for nobody."""
    row = make_scheduled(
        payload={"note": "for-you", "api_token": "s3cret"},
        key="customer-7",
        headers={"password": "s3cret"},
        failures=2,
        error="CheckViolation: customer-7, token=s3cret",
    )
    more = ["view_payload"] if is_allowed else []
    client = staff("view_scheduledmessage", *more)

    pages = [
        client.get(each).content.decode() for each in (URL, f"{URL}{row.pk}/change/")
    ]

    assert "s3cret" not in "".join(pages)
    assert [is_allowed] * 2 == ["customer-7" in page for page in pages]
    assert is_allowed is ("for-you" in pages[1])
    assert is_allowed is ("CheckViolation" in pages[1])
    assert "could not be published" in unescape(pages[1])


def test_a_cancel_is_confirmed_and_noted(staff):
    """One row, and those that are ticked; what has gone meanwhile is told."""
    client = staff("view_scheduledmessage", "cancel")
    one, two, three = (make_scheduled().pk for _ in range(3))
    assert 200 == client.get(f"{URL}{one}/cancel/").status_code
    client.post(f"{URL}{one}/cancel/", {"confirmed": "1"})
    keys = {"action": "cancel", "_selected_action": [one, two], "confirmed": "1"}
    answer = client.post(URL, keys, follow=True)

    assert [three] == list(ScheduledMessage.objects.values_list("pk", flat=True))
    told = [str(each) for each in answer.context["messages"]]
    assert ["1 message was cancelled. 1 had been published, or cancelled before."] == (
        told[-1:]
    )
    entries = LogEntry.objects.order_by("pk")
    assert [(str(one), DELETION), (str(two), DELETION)] == [
        (entry.object_id, entry.action_flag) for entry in entries
    ]
