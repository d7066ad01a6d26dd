"""Emitted: the values of running jobs, on their way to the database."""

from __future__ import annotations

import pytest

from django_pgqueue import LeaseLost
from django_pgqueue.models import Job, Output
from django_pgqueue.postgres import wake
from django_pgqueue.queues import output, waited
from django_pgqueue.worker.lease import reporter as module
from django_pgqueue.worker.lease.reporter import Emitted, Values
from django_pgqueue.worker.settle.settler import Waited
from tests.harness.factories import make_jobs
from tests.harness.notices import heard_until_now
from tests.worker.conftest import WORKER


@pytest.fixture
def streamed():
    return Waited()


@pytest.fixture
def emitted(monkeypatch, streamed):
    """What is written is due at once."""
    monkeypatch.setattr(module, "EMITS_INTERVAL_SECONDS", 0.0)
    return Emitted(worker=WORKER, streamed=streamed.among)


@pytest.fixture
def values(claim_all, leases):
    """Those of two running jobs."""
    make_jobs(2)
    return [Values(leases.get(job)) for job in claim_all()]


def stored():
    rows = Output.objects.order_by("job_id", "sequence")
    return [(row.job_id, row.value) for row in rows]


def test_all_jobs_share_a_write(monkeypatch, emitted, values, link):
    """However many values there are; the first one asks for it, and the next do not."""
    one, two = values
    asked = [
        emitted.add(one, [(1, "1")]),
        emitted.add(one, [(2, "2")]),
        emitted.add(two, [(1, "3")]),
    ]

    sent, append = [], output.append
    monkeypatch.setattr(
        output, "append", lambda *a, **k: sent.append(a) or append(*a, **k)
    )

    emitted.write(link)

    assert [True, False, False] == asked
    ids = [each.lease[0] for each in values]
    assert [(ids[0], 1), (ids[0], 2), (ids[1], 3)] == stored()
    assert None is emitted.seconds()
    assert 1 == len(sent)


def test_a_delivery_that_is_lost_is_told_so(emitted, values, link):
    """By its next value; nothing of it is written."""
    one, two = values
    Job.objects.filter(pk=one.lease[0]).update(deliveries=2, leased_by="somebody")
    emitted.add(one, [(1, "1")])
    emitted.add(two, [(1, "2")])

    emitted.write(link)

    assert [(two.lease[0], 2)] == stored()
    with pytest.raises(LeaseLost, match="delivery 1 has lost its lease"):
        emitted.add(one, [(2, "2")])
    assert [] == emitted.take(one)


def test_a_write_without_an_answer_is_sent_again(
    monkeypatch, emitted, values, link, cursor
):
    """And its values are there once."""
    append = output.append

    def unanswered(own, said, **how):
        with own.connection.transaction():
            append(cursor, said, **how)
        raise ConnectionError("gone")

    emitted.add(values[0], [(1, "1"), (2, "2")])
    with monkeypatch.context() as patch:
        patch.setattr(output, "append", unanswered)
        with pytest.raises(ConnectionError):
            emitted.write(link)
    emitted.add(values[0], [(3, "3")])

    emitted.write(link)

    assert [1, 2, 3] == [value for _, value in stored()]


def test_only_readers_are_told(emitted, values, link, streamed, cursor):
    """Of the jobs whose output they read, and for as long as they do."""
    one, two = values
    wake.listen(cursor, [name := waited.channel(cursor)])
    emitted.add(one, [(1, "1")])
    emitted.write(link)
    assert [] == heard_until_now(cursor.connection, name)

    streamed.note(str(one.lease[0]))
    for number in (2, 3):
        emitted.add(one, [(number, "1")])
        emitted.add(two, [(number, "1")])
        emitted.write(link)

    assert [f"!output:{one.lease[0]}"] * 2 == heard_until_now(cursor.connection, name)
