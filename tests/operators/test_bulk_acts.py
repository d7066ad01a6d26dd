"""Bulk acts: each row that is meant once, chunk by chunk, whatever happens between."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import OperationalError, connections

from django_pgqueue.models import ArchivedJob, BulkAct, DeadLetter, Job
from django_pgqueue.operators import bulk_acts
from django_pgqueue.operators.bulk_acts import BulkActs
from django_pgqueue.postgres.connect import Link
from django_pgqueue.tasks import operate
from tests.harness.factories import make_dead_letter, make_job, make_leased_job

pytestmark = pytest.mark.django_db

LATER = timedelta(minutes=5)


def begin(verb="redrive", *, reason="fixed", per_second=None, **filters):
    asked = bulk_acts.asked_of(verb, filters)
    counted = bulk_acts.count(verb, asked)
    key = operate.begin_act(
        verb, asked, counted, by="ann", reason=reason, per_second=per_second
    )
    return BulkAct.objects.get(pk=key)


def finish():
    """Do all chunks that are due; return how many there were."""
    chunks = 0
    while bulk_acts.step():
        chunks += 1
    return chunks


def failed(kind, where):
    traceback = f'  File "/srv/shop/{where}.py", line 7, in pay\n    boom()\n'
    return [{"kind": "error", "type": kind, "message": "no", "traceback": traceback}]


def test_it_does_all_that_the_filter_means_and_nothing_else():
    """Of a queue, here; and says how many it did."""
    made = [make_dead_letter(queue="mail").pk for _ in range(3)]
    other = make_dead_letter(queue="slow")

    act = begin(queue="mail")
    finish()

    assert made == [*Job.objects.order_by("pk").values_list("pk", flat=True)]
    assert [other.pk] == [*DeadLetter.objects.values_list("pk", flat=True)]
    act.refresh_from_db()
    assert (3, "done", 3, 0) == (act.counted, act.state, act.done, act.passed)
    assert act.started_at <= act.ended_at


def test_it_goes_in_chunks(monkeypatch):
    """Each a transaction; it goes on behind the one before."""
    monkeypatch.setattr(bulk_acts, "CHUNK_ROWS", 2)
    for _ in range(5):
        make_dead_letter()
    act = begin()

    for done in (2, 4):
        assert bulk_acts.step()
        act.refresh_from_db()
        assert ("running", done) == (act.state, act.done)
    finish()

    act.refresh_from_db()
    assert ("done", 5) == (act.state, act.done)


def test_what_dies_again_meanwhile_is_not_done_twice(monkeypatch):
    """Neither behind the position nor, after somebody else's redrive, before it."""
    monkeypatch.setattr(bulk_acts, "CHUNK_ROWS", 1)
    first, second = make_dead_letter(), make_dead_letter()
    act = begin()
    bulk_acts.step()
    Job.objects.all().delete()
    make_dead_letter(pk=first.pk, finished_at=LATER)
    DeadLetter.objects.filter(pk=second.pk).delete()
    make_dead_letter(pk=second.pk, finished_at=LATER)

    finish()

    act.refresh_from_db()
    assert ("done", 1) == (act.state, act.done)
    assert 2 == DeadLetter.objects.count()


def test_a_stop_comes_between_two_chunks(monkeypatch):
    """What is done stays done, and the rest is left."""
    monkeypatch.setattr(bulk_acts, "CHUNK_ROWS", 1)
    for _ in range(3):
        make_dead_letter()
    act = begin()
    bulk_acts.step()

    assert operate.stop_act(act.pk, by="bob")
    assert 0 == finish()

    act.refresh_from_db()
    assert ("stopped", 1, "bob") == (act.state, act.done, act.stopped_by)
    assert 2 == DeadLetter.objects.count()
    assert not operate.stop_act(act.pk, by="bob")


def test_no_more_are_done_in_a_time_than_was_said():
    """The next chunk is due when the one before has had its time."""
    for _ in range(3):
        make_dead_letter()
    act = begin(per_second=2)

    assert 1 == finish()

    act.refresh_from_db()
    assert ("running", 2) == (act.state, act.done)
    assert act.next_at > act.started_at


def test_retry_means_what_has_failed_and_waits():
    """What is scheduled stays where it is, unless that is asked for."""
    retrying = make_job(attempt=1, deliveries=1, visible_at=LATER)
    scheduled = make_job(visible_at=LATER)

    begin("retry")
    finish()
    due = Job.objects.extra(where=["visible_at <= statement_timestamp()"])
    assert [retrying.pk] == [*due.values_list("pk", flat=True)]

    begin("retry", state="scheduled")
    finish()
    assert {retrying.pk, scheduled.pk} == {*due.values_list("pk", flat=True)}


def test_cancel_takes_what_waits_and_asks_what_runs():
    """Who did it stands in the errors of each; other queues go on."""
    waiting = make_job(queue="loop")
    running = make_leased_job("w-1", queue="loop")
    other = make_job()

    act = begin("cancel", queue="loop")
    finish()

    act.refresh_from_db()
    assert ("done", 2) == (act.state, act.done)
    assert waiting.pk == ArchivedJob.objects.get(state="cancelled").pk
    running.refresh_from_db()
    assert running.cancel_requested_at is not None
    assert Job.objects.filter(pk=other.pk, cancel_requested_at=None).exists()


def test_a_chunk_and_its_place_are_one_transaction(monkeypatch):
    """What is lost before the commit is done once by whoever comes next."""
    made = make_dead_letter()
    act = begin()

    def lost(*args):
        raise OperationalError("server closed the connection")

    with monkeypatch.context() as patched:
        patched.setattr(bulk_acts, "_store", lost)
        assert bulk_acts.step()
    assert [made.pk] == [*DeadLetter.objects.values_list("pk", flat=True)]
    act.refresh_from_db()
    assert ("waiting", 0, 0) == (act.state, act.position, act.done)

    BulkAct.objects.update(next_at=act.created_at)
    finish()
    act.refresh_from_db()
    assert ("done", 1, "", 0) == (act.state, act.done, act.error, act.tries)


def busy(*args, **named):
    raise OperationalError("canceling statement due to statement timeout")


def test_a_chunk_that_fails_keeps_no_other_act_waiting(monkeypatch):
    """It is tried again later, and its row says why."""
    make_dead_letter(queue="heavy")
    act = begin(queue="heavy")
    make_job(queue="light")
    other = begin("cancel", queue="light")
    monkeypatch.setattr(bulk_acts.operate, "redrive", busy)

    assert 2 == finish()

    act.refresh_from_db()
    other.refresh_from_db()
    assert ("waiting", 1, "done") == (act.state, act.tries, other.state)
    assert act.error == "OperationalError: canceling statement due to statement timeout"
    assert act.next_at > act.created_at + timedelta(seconds=bulk_acts.TRY_SECONDS)


def test_what_is_never_done_ends_after_so_many_tries(monkeypatch):
    """In a row; nothing of it is done."""
    make_dead_letter()
    act = begin()
    monkeypatch.setattr(bulk_acts.operate, "redrive", busy)

    for tries in range(1, bulk_acts.TRIES_MAX + 1):
        act.refresh_from_db()
        assert "waiting" == act.state
        BulkAct.objects.update(next_at=act.created_at)
        assert 1 == finish(), tries

    act.refresh_from_db()
    assert ("failed", bulk_acts.TRIES_MAX, 0) == (act.state, act.tries, act.done)
    assert act.ended_at is not None
    assert "statement timeout" in act.error
    assert 1 == DeadLetter.objects.count()


def test_what_gives_up_after_it_was_counted_is_not_meant():
    """Also where it does so before the confirmation, and has a lower id."""
    make_dead_letter()
    counted = bulk_acts.count("redrive", {})
    late = make_dead_letter(finished_at=timedelta(0))
    DeadLetter.objects.filter(pk=late.pk).update(finished_at=counted.at + LATER)
    counted = counted._replace(top=late.pk)

    operate.begin_act("redrive", {}, counted, by="ann")
    finish()

    assert 1 == BulkAct.objects.get().done
    assert [late.pk] == [*DeadLetter.objects.values_list("pk", flat=True)]


def test_a_row_that_its_queue_refuses_is_left_and_named():
    """Others of its chunk go."""
    refused = make_dead_letter(args={})
    make_dead_letter()

    act = begin()
    finish()

    act.refresh_from_db()
    assert ("done", 1, 1) == (act.state, act.done, act.passed)
    assert act.error.startswith(f"{refused.pk}: ")
    assert [refused.pk] == [*DeadLetter.objects.values_list("pk", flat=True)]


@pytest.mark.django_db(transaction=True)
def test_two_who_lead_do_a_chunk_once(monkeypatch):
    """The second waits for nothing, and finds nothing that is due."""
    made = [make_dead_letter().pk for _ in range(3)]
    act = begin()
    redrive, began, goes_on = bulk_acts.operate.redrive, [], threading.Event()
    is_in_the_middle = threading.Event()

    def slow(ids, **to):
        began.append(ids)
        is_in_the_middle.set()
        assert goes_on.wait(60)
        return redrive(ids, **to)

    def lead():
        chore, link = BulkActs(), Link("default", name="tests: leader")
        try:
            return chore(link)
        finally:
            connections.close_all()
            link.drop()

    monkeypatch.setattr(bulk_acts.operate, "redrive", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lead)
        try:
            assert is_in_the_middle.wait(60)
            monkeypatch.setattr(bulk_acts.operate, "redrive", redrive)
            assert 1.0 == pool.submit(lead).result(60)
        finally:
            goes_on.set()
        assert 0.0 == first.result(60)

    act.refresh_from_db()
    assert ("done", 3, 0) == (act.state, act.done, act.passed)
    assert [made] == began
    assert made == [*Job.objects.order_by("pk").values_list("pk", flat=True)]
