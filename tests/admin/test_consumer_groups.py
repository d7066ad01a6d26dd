"""Consumer groups: how far they have read, why they do not, and how they are moved."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages

from django_pgqueue.models import Position
from tests.harness.minutes import in_minutes
from tests.log.rows import make_group, make_message, make_position, make_topic
from tests.management.test_doctor import make_worker

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/consumergroup/"
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
NOW = timedelta(0)
ERROR = {
    "kind": "error",
    "type": "shop.CardDeclined",
    "message": "declined, password=s3cret",
    "traceback": "Traceback …\nshop.CardDeclined: of order 4711, password=s3cret",
    "worker": "web-1",
    "at": "2026-11-20T20:10:00+00:00",
}


def texts(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def html_of(client, path=""):
    response = client.get(URL + path)
    assert 200 == response.status_code
    return unescape(response.content.decode())


def plain(html):
    return in_minutes(" ".join(re.sub("<[^>]*>", " ", html).split()))


def make_log(count=30, partitions=3):
    """Publish a message a minute, the last one just now; return the ids."""
    topic = make_topic(partitions=partitions).pk
    return [
        make_message(
            partition=n % partitions,
            topic_id=topic,
            published_at=-(count - 1 - n) * MINUTE,
        ).pk
        for n in range(count)
    ]


def positions():
    rows = Position.objects.order_by("partition")
    return list(rows.values_list("position", flat=True))


def test_the_list_tells_how_far_behind_groups_are(admin_client):
    """By topic and name; the most urgent state of any partition."""
    ids = make_log()
    make_worker(queues=["default"])
    behind = make_group(name="behind")
    make_position(behind, 0, position=ids[9])
    alone = make_group(name="alone", queue="slow")
    done = make_group(name="done")
    halted = make_group(name="halted")
    paused = make_group(
        name="paused",
        task="mail.tasks.noop",
        queue="mail",
        paused_at=-HOUR,
        paused_by="ada",
        pause_reason="rebuilt",
    )
    for partition in range(3):
        make_position(done, partition, position=ids[-1])
        make_position(paused, partition, position=ids[-4])
    make_position(alone, 1, position=ids[-1])
    make_position(halted, 2, position=ids[-1], halted_at=-HOUR, halted_for="error")

    html = html_of(admin_client)
    rows = html.split('id="result_list"')[1].split("</table>")[0].split("<tr>")[2:]
    lines = [plain(line) for line in rows]

    assert [
        "orders/alone unserved 20 29 min tests.app.tasks.noop slow",
        "orders/behind waiting 26 28 min tests.app.tasks.noop default",
        "orders/done idle 0 - tests.app.tasks.noop default",
        "orders/halted halted 1 of 3 partitions 20 29 min tests.app.tasks.noop default",
        "orders/paused paused 1 h ago by ada: rebuilt 3 2 min mail.tasks.noop mail",
    ] == lines
    assert 1 == html.count("and no living worker serves its queue")
    page = html_of(admin_client, f"{alone.pk}/change/")
    assert "pgqueue-group-waiting" not in page
    assert "pgqueue_worker --queues slow" in page


def test_a_group_shows_each_partition(admin_client):
    """Position, lag, age, reader and lease, failures and the next attempt."""
    ids = make_log(40, partitions=4)
    group = make_group(on_error="halt", batch=50, payload_filter={"country": "FR"})
    make_position(group, 0, position=ids[20], leased_by="web-1", leased_until=MINUTE)
    make_position(group, 1, position=ids[33], failures=2, retry_at=MINUTE)
    make_position(group, 2, halted_at=-HOUR, halted_for="error", failures=5)
    make_position(group, 3, halted_at=-HOUR, halted_for="retention")

    html = html_of(admin_client, f"{group.pk}/change/")
    table = html.split("<h2>Partitions")[1].split("</table>")[0]
    lines = [plain(line) for line in table.split("<tr>")[2:]]

    assert re.fullmatch(rf"0 reading {ids[20]} 4 15 min web-1 in \d+ s", lines[0])
    assert re.fullmatch(rf"1 retrying {ids[33]} 1 2 min 2 in \d+ s", lines[1])
    assert lines[2] == "2 halted by an error, 1 h ago 0 10 37 min 5"
    assert lines[3] == "3 halted by retention, 1 h ago 0 10 36 min"
    assert f"?topic=orders&partition=0&after={ids[20]}" in html
    assert "retry, then halt the partition" in html
    assert '"country": "FR"' in html
    assert "seek to the earliest message" in html
    assert "read on, or seek past the message" in html


def test_halted_partitions_are_read_on(admin_client):
    """With all attempts; those that retention has overtaken are not: it says why."""
    group = make_group(positions=4)
    halted = {"halted_at": NOW, "failures": 5, "errors": [ERROR]}
    make_position(group, 1, halted_for="error", **halted)
    make_position(group, 3, halted_for="error", **halted)
    path = f"{URL}{group.pk}/read-on/"

    done = admin_client.post(path, {"confirmed": "1"})
    after = Position.objects.get(partition=3)
    none = admin_client.post(path, {"confirmed": "1"})
    make_position(group, 2, halted_for="retention", **halted)
    lost = admin_client.post(path, {"confirmed": "1"})

    assert "Halted partitions that are read on: 2." == texts(done)[-1]
    assert (None, 0) == (after.halted_at, after.failures)
    assert "had none" in texts(none)[-1]
    assert "Retention has removed messages" in texts(lost)[-1]
    assert "in partition 2" in texts(lost)[-1]
    assert Position.objects.get(partition=2).halted_at is not None
    (entry,) = LogEntry.objects.all()
    assert "Halted partitions read on: 1, 3" in entry.change_message


# Seek --------------------------------------------------------------------------------


def seek(client, group, **data):
    return client.post(f"{URL}{group.pk}/seek/", {"way": "latest", **data})


def test_a_seek_says_what_happens_and_does_it_when_confirmed(admin_client):
    """How much is read again or skipped; the name of the group has to be typed."""
    ids = make_log()
    group = make_group()
    for partition in range(3):
        make_position(group, partition, position=ids[14], fence=7)
    before = positions()

    shown = seek(admin_client, group, preview="1", way="earliest")
    skipping = seek(admin_client, group, preview="1")
    unsure = seek(admin_client, group, seek="1", typed="orders")

    assert "15 messages would be read again, 0 skipped." in plain(
        shown.content.decode()
    )
    assert "0 messages would be read again, 15 skipped." in plain(
        skipping.content.decode()
    )
    assert "Type orders/stats to say" in unsure.content.decode()
    assert before == positions()
    assert not LogEntry.objects.exists()

    done = seek(admin_client, group, seek="1", typed=" orders/stats ")

    assert f"{URL}{group.pk}/change/" == done.url
    assert [ids[-1]] * 3 == positions()
    assert {8} == set(Position.objects.values_list("fence", flat=True))
    assert ["3 partitions read on from there."] == texts(done)
    (entry,) = LogEntry.objects.all()
    assert f"Sought to latest. Positions: 0: {ids[14]} " in entry.get_change_message()
