"""Messages: pages of the log, what narrows them, and what a message carries."""

from __future__ import annotations

from datetime import timedelta
from html import unescape

import pytest

from django_pgqueue.models import Message
from tests.log.rows import make_message, make_topic

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/message/"
MINUTE = timedelta(minutes=1)


def fill(count=120):
    """Publish to four partitions; return the ids, the oldest first."""
    topic = make_topic(partitions=4).pk
    return [
        make_message(
            "orders.paid" if n % 2 else "orders.created",
            key=f"c{n % 3}",
            partition=n % 4,
            topic_id=topic,
            published_at=-(count - n) * MINUTE,
        ).pk
        for n in range(count)
    ]


def listed(client, query=""):
    return [row.pk for row in client.get(URL + query).context["cl"].result_list]


@pytest.mark.parametrize(
    "query, fits",
    [
        ("topic=orders", lambda row: True),
        ("topic=clicks", lambda row: False),
        ("topic=none", lambda row: False),
        ("q=CREATED", lambda row: row.name == "orders.created"),
        ("topic=orders&q=paid", lambda row: row.name == "orders.paid"),
        ("topic=orders&key=c1", lambda row: row.key == "c1"),
        ("key=c1&partition=0", lambda row: (row.key, row.partition) == ("c1", 0)),
        ("topic=orders&partition=3", lambda row: row.partition == 3),
        ("topic=orders&partition=77", lambda row: False),
    ],
)
def test_messages_are_narrowed(admin_client, query, fits):
    """By topic, key and partition as wholes, by a part of the name."""
    fill(40)
    make_topic("clicks")
    rows = Message.objects.order_by("-pk")

    expected = [row.pk for row in rows if fits(row)]

    assert expected == listed(admin_client, f"?{query}")


def test_a_message_shows_what_it_carries_to_those_who_may_see_it(staff):
    """Payload, headers and key, without secrets; to others none of them."""
    row = make_message(
        "orders.paid",
        {"total": 19.9, "api_token": "s3cret"},
        key="c7",
        partition=3,
        headers={"trace": "00-4bf9", "password": "s3cret"},
    )
    path = f"{URL}{row.pk}/change/"

    seen = unescape(staff("view_message", "view_payload").get(path).content.decode())
    hidden = unescape(staff("view_message").get(path).content.decode())

    for html in (seen, hidden):
        assert "s3cret" not in html
        assert "orders.paid" in html
        assert "?topic=orders&partition=3" in html
        assert f"/admin/pgqueue/topic/{row.topic_id}/change/" in html
    assert '"total": 19.9' in seen
    assert "00-4bf9" in seen
    assert "?topic=orders&key=c7" in seen
    assert "c7" not in hidden.partition("<main")[2]
    assert "19.9" not in hidden
    assert "00-4bf9" not in hidden
    assert "needs permission pgqueue.view_payload" in hidden
