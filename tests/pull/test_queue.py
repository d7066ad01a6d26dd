"""A pull queue in Python: what is sent is received, once at a time, and ends."""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.sync import async_to_sync
from django.db import connection

from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Queue
from django_pgqueue.pull.queue import queue

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def thumbs(declared_anew):
    return queue("thumbs", visibility="60s", max_receives=3)


def lapse():
    """Let the visibility end of all that was received."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_job SET visible_at = now() WHERE leased_by IS NOT NULL"
        )


def test_what_is_sent_is_received_and_acked(thumbs):
    """It is a job all the while: running with its receiver, then in the archive."""
    sent = thumbs.send({"path": "a.jpg"}, headers={"by": "Ann"})
    [message] = thumbs.receive(10)

    assert (sent, 1, None) == (message.id, message.deliveries, message.group)
    assert ({"path": "a.jpg"}, {"by": "Ann"}) == (message.payload, message.headers)
    assert f"{sent}:1" == message.receipt
    assert [sent] == list(Job.objects.running().values_list("pk", flat=True))
    assert [] == thumbs.receive(10)
    assert message.ack()
    assert not Job.objects.exists()
    archived = ArchivedJob.objects.get(pk=sent)
    assert ("succeeded", "thumbs", "pgqueue.pull") == (
        *(archived.state, archived.queue),
        archived.task,
    )


def test_a_stale_receipt_is_told_and_changes_nothing(thumbs):
    """Whoever comes after its visibility has ended learns that it is another's."""
    ids = thumbs.send_many([1, 2])
    late = thumbs.receive(2)
    lapse()
    heirs = thumbs.receive(1)

    answer = thumbs.ack(late)
    assert (1, [late[0].receipt]) == (answer.done, answer.stale)
    for verb in (late[0].nack, late[0].reject, lambda: late[0].extend(60)):
        assert not verb()
    assert heirs[0].ack()
    assert sorted(ids) == sorted(ArchivedJob.objects.values_list("pk", flat=True))


def test_the_ack_is_one_with_what_its_transaction_writes(thumbs):
    """A block that fails writes nothing, and its message is given back at once."""
    thumbs.send(1)

    def work(fails):
        [message] = thumbs.receive()
        with message.atomic():
            Queue.objects.create(name="effect")
            if fails:
                raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        work(fails=True)
    assert not Queue.objects.filter(name="effect").exists()
    assert "OSError: no disk" == Job.objects.get().errors[0]["message"]
    work(fails=False)
    assert Queue.objects.filter(name="effect").exists()
    assert not Job.objects.exists()


def test_async_code_does_the_same(thumbs):
    """It waits without a thread, and settles in the thread of Django's connections."""

    async def work():
        waits = asyncio.ensure_future(thumbs.areceive(wait="60s"))
        await asyncio.sleep(0)
        await thumbs.asend("a", group="g")
        [message] = await waits
        async with message:
            assert "a" == message.payload
            assert await message.aextend("10m")
        return await thumbs.areceive()

    assert [] == async_to_sync(work)()
    assert ["succeeded"] == list(ArchivedJob.objects.values_list("state", flat=True))


def test_a_message_that_always_fails_becomes_a_dead_letter(thumbs):
    """Given back or left alone: after as many receives as the queue says."""
    given, left = thumbs.send_many(["given back", "left"])
    for _ in range(3):
        for message in thumbs.receive(2):
            if message.id == given:
                assert message.nack(error="no disk")
        lapse()
    assert [] == thumbs.receive(2)
    letters = {each.pk: each for each in DeadLetter.objects.all()}
    assert ("exhausted", "lease_expired") == (
        *(letters[given].reason, letters[left].reason),
    )
    assert ["no disk"] * 3 == [each["message"] for each in letters[given].errors]
    assert 3 == len(letters[left].errors)

    assert 2 == thumbs.redrive()
    assert {4} == {message.deliveries for message in thumbs.receive(2)}


def test_a_rejected_message_is_dead_at_once(thumbs):
    """With the reason that its receiver gives."""
    thumbs.send(1)
    assert thumbs.receive()[0].reject("no picture")
    letter = DeadLetter.objects.get()
    assert ("rejected", "no picture") == (letter.reason, letter.errors[0]["message"])


def test_messages_of_a_group_come_one_at_a_time_and_in_order(thumbs):
    """The others of the group wait, also while the first is given back."""
    thumbs.send_many([1, 2, 3, 9], group=lambda it: "a" if it < 9 else "b")
    first, other = thumbs.receive(10)
    assert {"a", "b"} == {first.group, other.group}
    first, other = sorted((first, other), key=lambda it: it.payload)
    assert other.ack()
    first.nack("1h")
    assert [] == thumbs.receive(10)
    lapse_all()
    for expected in (1, 2, 3):
        [message] = thumbs.receive(10)
        assert expected == message.payload
        assert message.ack()


def lapse_all():
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_job SET visible_at = now() WHERE visible_at > now()"
        )


def test_a_key_has_one_message_at_a_time(thumbs):
    """Until it is acked; then the next may be sent."""
    one = thumbs.send(1, key="a")
    assert one == thumbs.send(2, key="a")
    [message] = thumbs.receive(10)
    assert one == thumbs.send(2, key="a")
    message.ack()
    assert one != thumbs.send(2, key="a")


def test_who_waits_hears_of_what_is_sent(thumbs):
    """By a notification, long before the look that comes without one."""
    received = []

    def receive():
        try:
            received.extend(thumbs.receive(10, wait="60s"))
        finally:
            connection.close()

    waits = threading.Thread(target=receive)
    waits.start()
    thumbs.send("late")
    waits.join(20)
    assert ["late"] == [message.payload for message in received]


def test_purge_ends_what_waits(thumbs):
    """And leaves what somebody has received."""
    thumbs.send_many([1, 2, 3])
    [message] = thumbs.receive()
    thumbs.send(4, delay="1h")
    thumbs.send_many([5, 6], group="a")
    assert 5 == thumbs.purge()
    assert message.ack()
    assert 5 == ArchivedJob.objects.filter(state="cancelled").count()


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda q: q.send(1, group="a", key="b"), "one of the two"),
        (lambda q: q.send(1, group="a" * 129), "1 to 128"),
        (lambda q: q.send(1, delay="2y"), "no duration"),
        (lambda q: q.send(1, delay="400d"), "at most 366 days"),
        (lambda q: q.receive(1001), "1 to 1,000"),
        (lambda q: q.receive(visibility=0), "1 second to 12 hours"),
        (lambda q: q.ack("7"), "is no receipt"),
    ],
)
def test_wrong_values_are_refused_before_sql(
    thumbs, call, words, django_assert_num_queries
):
    """Each names the value, the limit and the way out."""
    with django_assert_num_queries(0), pytest.raises(InvalidOption, match=words):
        call(thumbs)
