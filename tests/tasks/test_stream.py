"""Streams: what a task emits, for its caller."""

from __future__ import annotations

import asyncio
import threading
from decimal import Decimal

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections

from django_pgqueue import (
    JobFailed,
    OutputFull,
    ResultTimeout,
)
from django_pgqueue.queues import output as store
from django_pgqueue.queues.output import Said
from django_pgqueue.queues.settle import Ended, ack
from django_pgqueue.tasks import output, waiting
from django_pgqueue.tasks.context import inline_context
from django_pgqueue.tasks.result import JobResult
from django_pgqueue.testing import drain
from tests.app.control_tasks import emits_these
from tests.app.models import Order
from tests.harness.factories import make_leased_job
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_ears(monkeypatch):
    """What other tests have left is not heard by."""
    monkeypatch.setattr(waiting, "_ears", {})


def emit(job, *numbers):
    said = [Said(job, 1, number, str(number)) for number in numbers]
    with connection.cursor() as opened:
        store.append(opened, said, worker="worker")


def values(emitted):
    return [each.value for each in emitted]


# Emitting ----------------------------------------------------------------------------


def test_values_travel_as_arguments_do():
    """They come back as what they were; the job's result is apart."""
    order = Order.objects.create(name="book")
    given = ["text", Decimal("1.5"), {"of": order}, None]
    result = emits_these.delay(given)
    drain()

    assert given == values(result.stream())
    assert "done" == result.get()


@pytest.mark.parametrize("name", ["VALUES_MAX", "OUTPUT_BYTES_MAX"])
def test_an_attempt_emits_so_much_and_no_more(monkeypatch, name):
    """The error names the limits."""
    monkeypatch.setattr(output, name, 3)
    ctx = inline_context("shop.send")
    for value in (1, 2, 3):
        ctx.emit(value)

    with pytest.raises(OutputFull, match=r"3 values, and with this one 4 bytes"):
        ctx.emit(4)


# Reading -----------------------------------------------------------------------------


def test_each_attempt_is_marked():
    """The first value of a later delivery says that the task has begun anew."""
    result = emits_these.delay(["a", "b"], fails=2)
    drain(retries=True)
    given = []

    with pytest.raises(JobFailed, match="ValueError: bad luck"):
        given.extend(result.stream())

    assert ["a", "b"] * 2 == values(given)
    assert [1, 1, 2, 2] == [each.attempt for each in given]
    assert [False, False, True, False] == [each.is_restart for each in given]


def test_a_reader_goes_on_where_he_was():
    """By the sequence that he has read last, in another process or after a crash."""
    result = emits_these.delay(["a", "b", "c"])
    drain()
    first = next(result.stream())

    rest = list(JobResult(result.id).stream(after=first.sequence))

    assert ["b", "c"] == values(rest)
    assert [] == list(result.stream(after=rest[-1].sequence))


@pytest.mark.django_db(transaction=True)
def test_a_stream_gives_up_when_it_was_told_to():
    """What is there by then is given."""
    job = make_leased_job().id
    emit(job, 1, 2)
    stream = JobResult(job).stream(timeout="0s")

    assert [1, 2] == [next(stream).value for _ in range(2)]
    with pytest.raises(ResultTimeout, match="is running; it has not ended"):
        next(stream)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("listens", [True, False], ids=["listens", "looks"])
def test_who_cannot_be_told_looks(settings, other_cursor, listens):
    """Of values by SQL, and of all behind a pooler; ever less often."""
    settings.PGQUEUE = {"LISTEN": listens}
    job = make_leased_job().id
    given = []

    def read():
        try:
            stream = JobResult(job).stream(timeout="1m")
            given.extend(each.value for each in stream)
        finally:
            connections.close_all()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    emit(job, 1)
    wait_for(lambda: given == [1], what="the first value")
    emit(job, 2)
    wait_for(lambda: given == [1, 2], what="the second value")
    ack(
        other_cursor,
        worker="worker",
        ended=[Ended(id=job, delivery=1, ran_seconds=0.1)],
    )
    thread.join(60)

    assert not thread.is_alive()


@pytest.mark.django_db(transaction=True)
def test_a_reader_who_leaves_ends_the_wait():
    """An async one is cancelled where he waits, as by a client that hangs up."""
    job = make_leased_job().id
    emit(job, 1)
    given = []

    async def read():
        async for each in JobResult(job).astream():
            given.append(each.value)  # noqa: PERF401 - Cut off, it keeps nothing.

    async def hang_up():
        reading = asyncio.ensure_future(read())
        await asyncio.to_thread(
            wait_for, lambda: any(ear._waits for ear in waiting._ears.values())
        )
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    async_to_sync(hang_up)()

    assert [1] == given
    assert [] == [wait for ear in waiting._ears.values() for wait in ear._waits]
