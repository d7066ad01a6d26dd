"""Topics: how much they hold, for how long, who listens, who holds them back."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry

from django_pgqueue.admin import topics
from django_pgqueue.log import browse
from django_pgqueue.models import BulkAct, Job, Message
from django_pgqueue.operators import bulk_acts
from tests.log.rows import (
    make_group,
    make_message,
    make_position,
    make_subscription,
    make_topic,
)
from tests.management.test_doctor import make_worker

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/topic/"
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def html_of(client, path=""):
    response = client.get(URL + path)
    assert 200 == response.status_code
    return unescape(response.content.decode())


def cells(html):
    """Return the texts of the cells of the first table, by the first of a line."""
    found = {}
    table = html.split('id="result_list"')[-1].split("</table>")[0]
    for line in table.split("<tr>")[2:]:
        texts = [
            " ".join(re.sub("<[^>]*>", " ", cell).split())
            for cell in re.findall("<t[hd][^>]*>(.*?)</t[hd]>", line, re.DOTALL)
        ]
        # In a list, the first one has the tick.
        name, *others = texts if texts[0] else texts[1:]
        found[name] = others
    return found


def test_the_list_tells_how_much_there_is_and_who_listens(admin_client, monkeypatch):
    """By name; messages are counted no further than a limit."""
    monkeypatch.setattr(browse, "COUNTED_MESSAGES_MAX", 5)
    monkeypatch.setattr(topics, "COUNTED_MESSAGES_MAX", 5)
    make_topic(
        "orders",
        partitions=4,
        retain=60 * DAY,
        retain_bytes=20_000_000_000,
        log_bytes=1_500_000_000,
        declared={
            "partitions": 16,
            "retain_seconds": (60 * DAY).total_seconds(),
            "retain_bytes": 20_000_000_000,
        },
    )
    make_topic("mail", retain=2 * DAY)
    make_message("clicks", published_at=-2 * DAY)
    for _ in range(7):
        make_message("orders.paid")
    make_message("clicks")
    make_subscription("orders.*")
    make_subscription("*.paid")
    make_subscription("clicks", queue="other")
    make_group("orders")

    found = cells(html_of(admin_client))

    assert {
        "clicks": ["16", "7 d the setting RETENTION", "-", "1", "2", "0", "-"],
        "mail": ["16", "2 d set in its row", "-", "0", "1", "0", "-"],
        "orders": [
            *("4 not as declared", "60 d, 20 GB declared by code", "1.5 GB"),
            *("5+", "2", "1", "-"),
        ],
    } == found
    assert ["clicks", "mail", "orders"] == list(found)


def test_a_topic_shows_its_log_and_its_listeners(admin_client):
    """Ends of the log, what differs from code, subscriptions and groups with lag."""
    topic = make_topic(
        "orders",
        partitions=2,
        schema="shop.events.OrderEvent",
        removed_to=3,
        declared={"partitions": 8, "retain_seconds": 3_600},
    )
    first = make_message("orders.paid", partition=0, published_at=-3 * HOUR)
    make_message("clicks")
    last = make_message("orders.paid", partition=1)
    wanting = make_subscription(
        "orders.*",
        queue="billing",
        task="billing.tasks.on_order",
        payload_filter={"country": "FR", "api_token": "s3cret"},
    )
    make_subscription("clicks", queue="nobody's business")
    make_subscription("*", queue="audit", last_declared_at=-30 * DAY)
    make_worker(queues=["stats"])
    group = make_group("orders", queue="stats")
    make_position(group, 1, position=last.pk)
    make_group("clicks", "others")

    html = html_of(admin_client, f"{topic.pk}/change/")

    for key in (first.pk, last.pk):
        assert f"/admin/pgqueue/message/{key}/change/" in html
    assert "shop.events.OrderEvent" in html
    assert ["8", "2"] == cells(html.split("Not as declared")[1])["partitions"]
    assert ["60 min", "the setting RETENTION"] == [
        text.replace("1 h", "60 min")
        for text in cells(html.split("Not as declared")[1])["retention"]
    ]
    listening = html.split("<h2>Subscriptions")[1]
    assert f"/admin/pgqueue/subscription/{wanting.pk}/change/" in listening
    assert "billing.tasks.on_order" in listening
    assert '"country": "FR"' in listening
    assert "s3cret" not in html
    assert "pgqueue-stale" in listening
    assert "nobody's business" not in html
    reading = cells(html.split("<h2>Consumer groups")[1])
    assert ["waiting", "1", "3 h", "stats", "tests.app.tasks.noop"] == reading["stats"]
    assert "others" not in reading


# Replay ------------------------------------------------------------------------------


def test_a_replay_is_counted_confirmed_and_done_in_the_background(admin_client):
    """For a subscription that is chosen; secrets of its filter are not shown."""
    topic = make_topic("orders", partitions=1)
    ids = [
        make_message("orders.paid", {"api_token": "s3cret", "n": n}).pk
        for n in range(3)
    ]
    make_subscription("orders", queue="mail", task="shop.mail")
    make_group("orders", "stats", task="shop.count")
    url = f"{URL}{topic.pk}/replay/"
    into = "subscription:mail/orders/shop.mail"
    data = {"to": into, "where": '{"api_token": "s3cret"}', "reason": "lost mails"}

    form = html_of(admin_client, f"{topic.pk}/replay/")
    assert into in form
    assert "group:stats" in form
    assert "null" not in form
    shown = admin_client.post(url, {**data, "preview": "1"}).content.decode()
    assert "3 messages match." in shown
    assert "Published from" in shown
    unsure = admin_client.post(url, {**data, "replay": "1"}).content.decode()
    assert "Type orders to say" in unsure
    assert 0 == BulkAct.objects.count()
    done = admin_client.post(url, {**data, "typed": "orders", "replay": "1"})

    act = BulkAct.objects.get()
    assert f"/admin/pgqueue/bulkact/{act.pk}/change/" == done.url
    bulk_acts.step()
    assert ids == [*Job.objects.order_by("id").values_list("message_id", flat=True)]
    for page in (done.url, "/admin/pgqueue/bulkact/"):
        html = unescape(admin_client.get(page).content.decode())
        assert f"into={into}" in html
        assert "lost mails" in html
        assert "s3cret" not in html


def test_a_topic_is_repartitioned_on_its_page(admin_client):
    """It says from when on what is read; a count that cannot be is refused."""
    topic = make_topic("orders", partitions=4)
    make_group("orders")
    url = f"{URL}{topic.pk}/repartition/"

    assert 'value="4"' in admin_client.get(url).content.decode()
    refused = admin_client.post(url, {"confirmed": "1", "partitions": "257"})
    assert "less than or equal to 256" in refused.content.decode()
    admin_client.post(url, {"confirmed": "1", "partitions": "6"})

    html = html_of(admin_client, f"{topic.pk}/change/")
    assert "6, 4 to 9" in html
    assert "0 to 3, until every group has read them" in html
    history = html_of(admin_client, f"{topic.pk}/history/")
    assert "Repartitioned: 6 partitions." in history


def test_a_message_is_published_on_the_page_of_its_topic(staff):
    """As any other: a subscription has its job, and the log entry does not tell what
    it says."""
    topic = make_topic("orders")
    make_subscription("orders.created")
    client, url = staff("view_topic", "send"), f"{URL}{topic.pk}/publish/"
    given = {"confirmed": "1", "rest": "created", "key": "c7"}

    refused = client.post(url, {**given, "payload": "{"})
    assert "Expecting property name" in unescape(refused.content.decode())
    client.post(url, {**given, "rest": "no name", "payload": "1"})
    assert 0 == Message.objects.count()
    client.post(url, {**given, "payload": '{"id": 42}'})

    message = Message.objects.get()
    assert ("orders.created", "c7") == (message.name, message.key)
    assert {"id": 42} == message.payload
    assert message.pk == Job.objects.get().message_id
    entry = LogEntry.objects.get()
    assert f"Published message {message.pk}." == entry.get_change_message()
