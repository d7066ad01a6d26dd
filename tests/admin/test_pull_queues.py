"""Pull queues in the admin: messages are jobs that clients receive."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.db import connection

from django_pgqueue.models import Queue
from django_pgqueue.pull.queue import known_queue

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/queue/"


def texts(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


@pytest.fixture
def thumbs(db):
    """A pull queue that code does not declare."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_declare_queue('thumbs', 90, 1)")
    return known_queue("thumbs")


def test_its_page_says_what_it_is_and_offers_what_fits(admin_client, thumbs):
    """A limit is for workers; a queue of tasks takes no messages."""
    Queue.objects.create(name="mail")
    page = admin_client.get(f"{URL}thumbs/change/")
    html = page.content.decode()
    for said in ("messages to receive", "1 min 30 s"):
        assert said in html
    assert "Send a message" in html
    assert "Set limit" not in html
    assert (
        "Send a message" not in admin_client.get(f"{URL}mail/change/").content.decode()
    )
    listed = admin_client.get(URL).content.decode()
    assert 1 == listed.count("no worker claims from it")


def test_a_message_is_sent(staff, thumbs):
    """With its payload, which the log entry does not tell."""
    client = staff("view_queue", "send")
    response = client.post(
        f"{URL}thumbs/send/",
        {
            "confirmed": "1",
            "payload": '{"path": "a.jpg"}',
            "group": "album",
            "delay": "0s",
        },
    )
    [message] = thumbs.receive()
    assert ({"path": "a.jpg"}, "album") == (message.payload, message.group)
    assert [f"1 sent: message {message.id}."] == texts(response)
    entry = LogEntry.objects.get()
    assert f"Sent message {message.id}." == entry.get_change_message()


def test_a_received_message_shows_its_receiver_and_hides_its_payload(staff, thumbs):
    """On Jobs, without a link to a worker; with the permission the payload is there,
    redacted."""
    sent = thumbs.send({"path": "a.jpg", "password": "hunter2"})
    assert 1 == len(thumbs.receive())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job SET leased_by = 'node-7'")
    url = f"/admin/pgqueue/job/{sent}/change/"
    html = staff("view_job", "view_worker").get(url).content.decode()
    assert "by receiver" in html
    assert "node-7" in html
    assert "/pgqueue/worker/node-7/" not in html
    assert "a.jpg" not in html
    html = staff("view_job", "view_payload").get(url).content.decode()
    assert "a.jpg" in html
    assert "hunter2" not in html
    listed = staff("view_job", "view_worker").get("/admin/pgqueue/job/")
    assert "/pgqueue/worker/node-7/" not in listed.content.decode()
