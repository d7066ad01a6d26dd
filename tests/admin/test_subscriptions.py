"""Subscriptions: what they route where, and what people do with them."""

from __future__ import annotations

from datetime import timedelta
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages

from django_pgqueue.models import Subscription
from tests.harness.minutes import in_minutes
from tests.log.rows import make_message, make_subscription, make_topic

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/subscription/"
DAY = timedelta(days=1)


def texts(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def html_of(client, path=""):
    response = client.get(URL + path)
    assert 200 == response.status_code
    return unescape(response.content.decode())


def make_each():
    """Make one in each state; return them by pattern."""
    rows = [
        make_subscription("orders.*.failed", queue="billing", task="billing.on_fail"),
        make_subscription(
            "clicks",
            disabled_at=-DAY,
            disabled_by="ada",
            disabled_reason="too many",
        ),
        make_subscription("*.paid", last_declared_at=-8 * DAY),
        make_subscription(
            "mail", start="earliest", backfill_position=4_711, backfill_xid=1
        ),
        make_subscription("old", last_declared_at=-8 * DAY, disabled_at=-DAY),
        make_subscription("users", source="user", last_declared_at=None),
    ]
    return {row.pattern: row for row in rows}


def test_the_list_tells_what_goes_where(admin_client):
    """By pattern, with state and reason, queue, task, filter, last declaration."""
    make_each()
    make_subscription("a", payload_filter={"country": "FR", "password": "s3cret"})

    html = html_of(admin_client)
    lines = dict(
        zip(
            ["*.paid", "a", "clicks", "mail", "old", "orders.*.failed", "users"],
            html.split('id="result_list"')[1].split("<tr>")[2:],
            strict=True,
        )
    )

    assert "pgqueue-stale" in lines["*.paid"]
    assert '"country": "FR"' in lines["a"]
    assert "s3cret" not in html
    assert "disabled" in lines["clicks"]
    assert "by ada: too many" in lines["clicks"]
    assert "back-filling" in lines["mail"]
    assert "up to id 4711" in lines["mail"]
    assert "pgqueue-stale" not in lines["old"]
    assert "billing.on_fail" in lines["orders.*.failed"]
    assert "?queue=billing" in lines["orders.*.failed"]
    assert "enabled" in lines["orders.*.failed"]
    assert "1 min ago" in in_minutes(lines["orders.*.failed"])
    assert "by a user" in lines["users"]


def test_a_subscription_shows_what_comes_of_it(admin_client):
    """Topic, jobs, back-fill; of a stale or disabled one what that means."""
    rows = make_each()
    make_topic("orders")
    last = make_message("mail")

    plain = html_of(admin_client, f"{rows['orders.*.failed'].pk}/change/")
    any_topic = html_of(admin_client, f"{rows['*.paid'].pk}/change/")
    filling = html_of(admin_client, f"{rows['mail'].pk}/change/")
    disabled = html_of(admin_client, f"{rows['clicks'].pk}/change/")

    assert "/admin/pgqueue/job/?queue=billing&q=billing.on_fail" in plain
    assert f"/admin/pgqueue/topic/{make_topic('orders').pk}/change/" in plain
    assert "declared it for 7 days" not in plain
    assert "declared it for 7 days" in any_topic
    assert f"up to id 4,711 of {last.pk:,}" in filling
    assert "earliest" in filling
    assert "none is made later" in disabled
    assert "clicks, not known yet" in disabled


def test_what_code_declares_is_not_deleted(admin_client):
    """What users have made is, and what code has not declared for a week."""
    rows = make_each()
    data = {
        "action": "remove",
        "confirmed": "1",
        "_selected_action": [row.pk for row in rows.values()],
    }

    answer = admin_client.post(URL, data)

    left = Subscription.objects.order_by("pattern").values_list("pattern", flat=True)
    assert ["clicks", "mail", "orders.*.failed"] == list(left)
    assert ["3 deleted. 3 left, declared by code lately"] == [
        text.split(":")[0] for text in texts(answer)
    ]
    assert 3 == LogEntry.objects.count()
