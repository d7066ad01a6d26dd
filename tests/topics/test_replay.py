"""Messages of a log once more, as jobs of somebody who exists: each once."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connection, connections

from django_pgqueue import (
    TopicError,
    consume,
    subscribe,
    topic,
)
from django_pgqueue.log import replay
from django_pgqueue.models import BulkAct, Job, Message, Position
from django_pgqueue.operators import bulk_acts
from django_pgqueue.testing import drain
from django_pgqueue.topics.sync import sync_groups
from tests.log.log import put
from tests.topics.conftest import deploy

pytestmark = pytest.mark.django_db(transaction=True)

INTO = "subscription:mail/clicks"


def listen(pattern="clicks", **said):
    """Subscribe to what is published from now on; what comes is noted."""
    came = []

    def handler(message):
        came.append(message)

    task = subscribe(pattern, queue="mail", name="shop.mail", **said)(handler)
    deploy()
    return task, came


def finish():
    """Do all chunks that are due; return how many there were."""
    chunks = 0
    while bulk_acts.step():
        chunks += 1
    return chunks


def replayed():
    """Return of each job to which message it refers, by the id."""
    return [*Job.objects.order_by("id").values_list("message_id", flat=True)]


def test_a_subscription_gets_a_job_for_each_message_in_their_order(cursor):
    """As fan-out makes them, of what it wants alone; their headers say so."""
    ids = put(cursor, *({"n": n, "even": n % 2 == 0} for n in range(6)))
    put(cursor, {"n": 7, "even": True}, topic="orders")
    listen(where={"even": True}, tags=["mail"], priority=7)

    asked = topic("clicks").replay(to=INTO, since="earliest", by="ann")
    finish()

    assert ids[::2] == replayed()
    job = Job.objects.first()
    assert ("shop.mail", "mail", 7) == (job.task, job.queue, job.priority)
    assert {"tags": ["mail"], "pgqueue.replay": asked.id} == job.headers
    told = asked.progress()
    assert ("done", 3, 3, "") == (told.state, told.done, told.counted, told.error)
    assert not asked.stop()
    assert ("ann", "replay") == BulkAct.objects.values_list("asked_by", "verb").get()


def test_a_group_s_task_gets_a_list_of_one_and_its_position_stays(cursor):
    """As of a dead letter; what it reads meanwhile does not change."""
    came = []

    def count(messages):
        came.append([each.payload for each in messages])

    handler = consume("clicks", group="stats", name="shop.count")(count)
    put(cursor, 0)
    with connection.cursor() as plain:
        sync_groups(plain)
    before = [*Position.objects.values_list("position", flat=True)]

    for to in ("group:stats", topic("clicks").group("stats"), handler):
        topic("clicks").replay(to=to, since="earliest")
        finish()
    async_to_sync(topic("clicks").group("stats").areplay)(since="1h")
    finish()
    drain()

    assert [[0]] * 4 == came
    assert before == [*Position.objects.values_list("position", flat=True)]


def test_a_pull_queue_gets_a_copy_of_each_message(cursor):
    """Its receivers need nothing of the log; headers say which message it was."""
    cursor.execute("SELECT pgqueue_declare_queue('thumbs', 60, 3)")
    ids = put(cursor, {"path": "a.jpg"}, {"path": "b.jpg"}, {"path": "c.jpg"})
    asked = topic("clicks").replay(to="queue:thumbs", since=ids[0], until=ids[1])
    finish()

    cursor.execute("SELECT payload, headers FROM pgqueue_receive('thumbs', 10)")
    rows = cursor.fetchall()
    assert [{"path": "a.jpg"}, {"path": "b.jpg"}] == [row[0] for row in rows]
    told = {"pgqueue.message": ids[0], "pgqueue.replay": asked.id}
    assert told == rows[0][1]
    assert [None, None] == replayed()
    with pytest.raises(TopicError, match="Did you mean 'thumbs'"):
        topic("clicks").replay(to="queue:thumb", since=1)


def test_a_range_is_of_ids_or_of_times_and_of_what_a_payload_contains(cursor):
    """Ids are both meant; a time is the end of what was before it."""
    task, _ = listen()
    Job.objects.all().delete()
    ids = put(cursor, *({"n": n % 2} for n in range(8)))
    Job.objects.all().delete()
    times = dict(Message.objects.values_list("id", "published_at"))

    for said, expected in (
        ({"since": ids[2], "until": ids[4]}, ids[2:5]),
        ({"since": times[ids[3]], "until": times[ids[6]]}, ids[3:6]),
        ({"since": "1h", "where": {"n": 1}}, ids[1::2]),
        ({"since": timedelta(hours=1), "until": "30m"}, []),
        ({"since": ids[0], "until": "earliest"}, []),
    ):
        topic("clicks").replay(to=task, **said)
        finish()
        assert expected == replayed(), said
        Job.objects.all().delete()


def test_each_message_is_replayed_once_whoever_dies_and_whoever_leads(
    cursor, monkeypatch
):
    """A chunk and how far it is are one transaction; two who lead do not share one."""
    monkeypatch.setattr(replay, "CHUNK_MESSAGES", 20)
    put(cursor, *range(200))
    listen()
    asked = topic("clicks").replay(to=INTO, since="earliest")
    make, calls = replay.replay, []

    def dies(*args, **kwargs):
        done = make(*args, **kwargs)
        calls.append(done)
        if len(calls) % 3 == 0:
            raise OperationalError("cut")
        return done

    monkeypatch.setattr(replay, "replay", dies)

    def leads(_):
        try:
            while asked.progress().state in ("waiting", "running"):
                bulk_acts.step()
                BulkAct.objects.filter(tries__gt=0).update(next_at="2020-01-01T00:00Z")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(leads, range(3)))

    assert ("done", 200) == (asked.progress().state, asked.progress().done)
    assert {1} == set(Counter(replayed()).values())
    assert (200, replayed()) == (len(replayed()), sorted(replayed()))


def test_what_is_published_after_the_request_is_not_replayed(cursor, other_cursor):
    """Nor what is committed after it: a range ends at the horizon of its moment."""
    listen()
    cursor.execute("DELETE FROM pgqueue_subscription")
    listen()
    old = put(cursor, 1)
    with other_cursor.connection.transaction():
        put(other_cursor, 2)
        late = put(cursor, 3)
        asked = topic("clicks").replay(to=INTO, since="earliest")
        assert old[0] <= asked.progress().top < late[0]
    put(cursor, 4)
    Job.objects.all().delete()
    finish()

    assert old == replayed()
