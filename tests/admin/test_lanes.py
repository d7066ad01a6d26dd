"""Lanes: what waits in each and for whom, and what operators say of them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from django_pgqueue.models import Job, Lane
from django_pgqueue.queues.lanes import promote
from tests.harness.factories import make_jobs

pytestmark = pytest.mark.django_db

URL = "/admin/pgqueue/lane/"
HOUR = timedelta(hours=1)


def make_lane(name, count=3, capacity=None):
    """Insert jobs of a lane and let the first through; return their ids."""
    ids = make_jobs(count, lane=name, lane_capacity=capacity)
    with connection.cursor() as cursor:
        promote(cursor, [name])
    return ids


def act(client, name, *lanes, **data):
    ticked = {"action": name, "_selected_action": lanes, "confirmed": "1"}
    return client.post(URL, {**ticked, **data})


def told(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def visible():
    rows = Job.objects.filter(visible_at__isnull=False)
    return [*rows.order_by("pk").values_list("pk", flat=True)]


def test_lanes_are_listed_with_whom_they_wait_for(admin_client):
    """How many wait and run, and what the job does that holds them up."""
    first, *_ = make_lane("shop.charge:17", 4)
    Job.objects.filter(pk=first).update(
        leased_by="w",
        leased_at=Now() - 4 * timedelta(minutes=1),
        visible_at=Now() + HOUR,
    )

    (row,) = admin_client.get(URL).context["cl"].result_list
    html = admin_client.get(f"{URL}shop.charge_3A17/change/").content.decode()
    assert (3, 1) == (row.stats.waiting, row.stats.running)
    link = f'<a href="/admin/pgqueue/job/{first}/change/">{first}</a> running for 4 min'
    assert link in html
    assert "1 of 1" in html


@pytest.mark.django_db(transaction=True)
def test_a_lane_is_paused_until_a_time_and_resumed(admin_client, new_cursor):
    """Who, until when and why are shown and noted; workers are told of its end."""
    make_lane("a")
    until = timezone.now() + 2 * HOUR
    done = act(
        admin_client, "pause", "a", reason="down", until=f"{until:%Y-%m-%d %H:%M}"
    )

    row = Lane.objects.get()
    assert ("admin", "down") == (row.paused_by, row.pause_reason)
    assert HOUR < row.paused_until - row.paused_at <= 2 * HOUR
    assert ["1 paused; what was let through goes on."] == told(done)
    html = admin_client.get(URL).content.decode()
    assert "down" in html
    assert "in 1 h 59 min" in html or "in 1 h 58 min" in html
    listener = new_cursor()
    (channel,) = listener.execute("SELECT pgqueue_channel()").fetchone()
    listener.execute(f"LISTEN {channel}")

    admin_client.post(f"{URL}a/resume/")
    assert not Lane.objects.exists()
    heard = listener.connection.notifies(timeout=10, stop_after=2)
    assert ["!held", "!lane:a"] == [notify.payload for notify in heard]
    assert [
        "Paused: down",
        "Resumed; it was paused by admin: down",
    ] == [entry.change_message for entry in LogEntry.objects.order_by("pk")]


def test_a_fair_lane_is_given_a_weight(admin_client):
    """And again one job in a turn."""
    make_jobs(3, lane="a", lane_policy="fair")

    done = act(admin_client, "weight", "a", jobs="3")
    assert ["1 changed to 3 in a turn."] == told(done)
    assert ">fair, weight 3<" in admin_client.get(URL).content.decode()
    html = admin_client.get(f"{URL}a/change/").content.decode()
    assert "in turn with others, weight 3" in html
    assert f"{URL}a/weight/" in html
    assert f"{URL}a/capacity/" not in html
    form = admin_client.get(f"{URL}a/weight/").context["form"]
    assert 3 == form["jobs"].value()
    act(admin_client, "weight", "a", jobs="")
    assert not Lane.objects.exists()
    assert ["Weight: 3 in a turn.", "Weight: one in a turn, as others."] == [
        entry.change_message for entry in LogEntry.objects.order_by("pk")
    ]


def test_an_open_breaker_is_shown_and_closed(admin_client):
    """On its own page and on those of the keys of its task."""
    make_jobs(1, task="shop.sync", lane="shop.sync:1", lane_capacity=5)
    Lane.objects.create(
        name="shop.sync",
        paused_at=Now(),
        paused_until=Now() + HOUR,
        paused_by="breaker",
        pause_reason="9 of 9 attempts failed",
        breaker_trips=1,
    )

    page = admin_client.get(f"{URL}shop.sync:1/change/", follow=True).content.decode()
    assert "task shop.sync is paused for another 59 min" in page
    assert "9 of 9 attempts failed" in page
    assert "breaker open" in admin_client.get(URL).content.decode()
    act(admin_client, "resume", "shop.sync")
    assert not Lane.objects.exists()
