"""Heartbeat: leases are renewed in time, the worker's row is kept, a leader elected."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import psycopg
import pytest
from django.db.models.functions import Now

from django_pgqueue.models import Job, Worker
from django_pgqueue.postgres.wake import listen
from django_pgqueue.queues import workers
from django_pgqueue.topics import consume
from django_pgqueue.worker.chores import heartbeat as module
from django_pgqueue.worker.chores.counting import Counting
from django_pgqueue.worker.chores.heartbeat import (
    LEADER_TERM,
    ROW_INTERVAL_SECONDS,
    Heartbeat,
)
from django_pgqueue.worker.chores.scheduler import Scheduler
from django_pgqueue.worker.claim.listener import Listener, Wakes
from django_pgqueue.worker.lease import renewal
from django_pgqueue.worker.lease.renewal import ASK_AGAIN_SECONDS, Renewal
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.tally import Tally
from tests.harness.factories import make_group, make_job, make_jobs, make_topic
from tests.worker.conftest import WORKER

LEASE_SECONDS = 60.0


class Clock:
    """Our own clock, moved by the test; the database's goes on as ever."""

    def __init__(self):
        # A number of 1/1024 s: what is added to it is exact, also where a float of
        # more seconds has one digit less (2 ** 16 of them are 18 hours).
        self.now = round(time.monotonic() * 1024) / 1024

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(renewal, "time", clock)
    return clock


@pytest.fixture
def claim_all(claim_all, leases, clock):
    """As ever, but by the clock of the test: a machine may be slow in between."""

    def claimed(*args, **options):
        jobs = claim_all(*args, **options)
        for held in filter(None, map(leases.get, jobs)):
            held.claimed_at = held.renewed_at = clock.now - 1.0
            held.valid_until = held.renewed_at + LEASE_SECONDS
        return jobs

    return claimed


def make_heartbeat(link, leases, name=WORKER, listener=None):
    """Return a heartbeat whose leadership and registrations can be seen."""
    leader = SimpleNamespace(leads=None)
    leader.set_leading = lambda leads: setattr(leader, "leads", leads)

    def register():
        with link.cursor() as cursor:
            workers.register(
                cursor,
                name=name,
                hostname="h",
                pid=1,
                queues=[],
                threads=1,
                version="0",
            )

    heartbeat = Heartbeat(
        link,
        worker=name,
        leases=leases,
        renewal=Renewal(leases, worker=name),
        register=register,
        leader=leader,
        scheduler=Scheduler(link),
        promoter=SimpleNamespace(set_leading=lambda is_leading: None),
        listener=listener,
        counting=Counting(Tally()),
    )
    heartbeat.register, heartbeat.leader = register, leader
    return heartbeat


@pytest.fixture
def heartbeat(link, leases, clock):
    heartbeat = make_heartbeat(link, leases)
    heartbeat.register()
    return heartbeat


def lease_end(job):
    return Job.objects.get(pk=job.id).visible_at


# Leases ------------------------------------------------------------------------------


def test_a_young_lease_is_left_alone(heartbeat, claim_all, clock):
    """Most jobs are done long before a third of it."""
    make_job()
    (job,) = claim_all()
    before = lease_end(job)
    clock.now += LEASE_SECONDS / 3 - 2

    assert 1.0 == heartbeat.tick()
    assert before == lease_end(job)


def test_a_lease_is_renewed_after_a_third_of_its_length(
    heartbeat, claim_all, clock, leases
):
    """All that are old, in one statement; by both clocks."""
    make_jobs(3)
    jobs = claim_all()
    before = [lease_end(job) for job in jobs]
    clock.now += LEASE_SECONDS / 3

    heartbeat.tick()

    assert all(new > old for new, old in zip(map(lease_end, jobs), before, strict=True))
    assert {(clock.now, clock.now + LEASE_SECONDS)} == {
        (held.renewed_at, held.valid_until) for held in leases.all()
    }
    assert {1} == {job.deliveries for job in Job.objects.all()}


def test_more_leases_than_one_statement_takes_are_renewed_at_once(
    heartbeat, claim_all, clock, leases, monkeypatch
):
    """Thousands of coroutines may have old ones; the next tick could be too late."""
    monkeypatch.setattr(renewal, "RENEW_ROWS_MAX", 2)
    make_jobs(5)
    jobs = claim_all()
    clock.now += LEASE_SECONDS / 3

    heartbeat.tick()

    assert {clock.now} == {leases.get(job).renewed_at for job in jobs}


def test_a_renewed_lease_is_young_again(heartbeat, claim_all, clock):
    """The next renewal is a third of a lease later."""
    make_job()
    (job,) = claim_all()
    clock.now += LEASE_SECONDS / 3
    heartbeat.tick()
    renewed = lease_end(job)

    clock.now += LEASE_SECONDS / 3 - 1
    heartbeat.tick()
    assert renewed == lease_end(job)
    clock.now += 1
    heartbeat.tick()
    assert renewed < lease_end(job)


def test_a_short_lease_is_looked_after_more_often(link, clock, leases):
    """A sixth of it, and at least once a second."""
    leases.lease_seconds = 1.2
    heartbeat = make_heartbeat(link, leases)

    assert pytest.approx(0.2) == heartbeat.tick()


def test_a_locked_row_is_asked_for_again_and_not_waited_for(
    heartbeat, claim_all, clock, leases, other_cursor
):
    """An atomic ack, or an operator, holds it; the others are renewed."""
    make_jobs(2)
    locked, free = claim_all()
    clock.now += LEASE_SECONDS / 3
    with other_cursor.connection.transaction():
        other_cursor.execute(
            "SELECT id FROM pgqueue_job WHERE id = %s FOR UPDATE", [locked.id]
        )
        assert ASK_AGAIN_SECONDS == heartbeat.tick()

    assert clock.now == leases.get(free).renewed_at
    assert clock.now > leases.get(locked).renewed_at
    assert not leases.get(locked).is_lost
    assert 1.0 == heartbeat.tick()
    assert clock.now == leases.get(locked).renewed_at


def test_a_row_that_is_locked_when_its_lease_runs_out_is_not_lost(
    heartbeat, claim_all, clock, leases, other_cursor, caplog
):
    """However long somebody holds it: it is renewed as soon as it is free."""
    make_job()
    (job,) = claim_all()
    with other_cursor.connection.transaction():
        other_cursor.execute("SELECT id FROM pgqueue_job FOR UPDATE")
        for _ in range(3):
            clock.now += LEASE_SECONDS
            assert ASK_AGAIN_SECONDS == heartbeat.tick()
    assert not leases.get(job).is_lost

    assert 1.0 == heartbeat.tick()

    assert clock.now + LEASE_SECONDS == leases.get(job).valid_until
    assert [] == caplog.messages


def test_a_lease_whose_outcome_is_being_written_is_not_lost(
    heartbeat, claim_all, clock, leases, caplog
):
    """After an outage the row is gone before the settler has its answer."""
    make_job()
    (job,) = claim_all()
    clock.now += 2 * LEASE_SECONDS
    Job.objects.all().delete()

    assert ASK_AGAIN_SECONDS == heartbeat.tick()
    assert not leases.get(job).is_lost
    leases.drop(job)
    clock.now += ASK_AGAIN_SECONDS

    assert 1.0 == heartbeat.tick()
    assert [] == caplog.messages


def test_a_lease_that_was_taken_over_is_lost_when_it_has_run_out_here_too(
    heartbeat, claim_all, clock, leases, caplog
):
    """Until then it may be a lock; it is told once."""
    make_job()
    (job,) = claim_all()
    Job.objects.update(leased_by="other", deliveries=2)
    clock.now += LEASE_SECONDS / 3
    assert ASK_AGAIN_SECONDS == heartbeat.tick()
    assert not leases.get(job).is_lost

    clock.now += LEASE_SECONDS
    for _ in range(3):
        assert 1.0 == heartbeat.tick()

    assert leases.get(job).is_lost
    lines = [message for message in caplog.messages if message.startswith("lost")]
    assert 1 == len(lines)
    assert f"job={job.id} " in lines[0]
    assert "other" == Job.objects.get().leased_by


def test_a_job_that_is_settled_meanwhile_is_not_lost(
    heartbeat, claim_all, clock, leases, monkeypatch, caplog
):
    """Between the list of what is old and the answer."""
    make_job()
    (job,) = claim_all()
    clock.now += 2 * LEASE_SECONDS
    real = renewal.lease.renew

    def renew(*args, **options):
        Job.objects.all().delete()
        leases.drop(job)
        return real(*args, **options)

    monkeypatch.setattr(renewal.lease, "renew", renew)

    assert 1.0 == heartbeat.tick()
    assert [] == caplog.messages


# The row and the election ------------------------------------------------------------


def test_a_worker_says_every_ten_seconds_that_it_lives(heartbeat, clock):
    """In its row."""
    heartbeat.tick()
    before = Worker.objects.get().heartbeat_at
    clock.now += ROW_INTERVAL_SECONDS - 1
    heartbeat.tick()
    assert before == Worker.objects.get().heartbeat_at

    clock.now += 1
    heartbeat.tick()

    assert before < Worker.objects.get().heartbeat_at


def test_a_worker_says_every_hour_which_groups_its_code_has(
    heartbeat, clock, monkeypatch
):
    """So that one whose worker runs for weeks is not taken for one without code."""
    here = SimpleNamespace(topic="orders", group="stats")
    monkeypatch.setattr(consume, "_declared", {("orders", "stats"): here})
    group = make_group(make_topic(), last_declared_at=timedelta(days=-8))
    clock.now += 3_590.0
    heartbeat.tick()
    group.refresh_from_db()
    before = group.last_declared_at
    # A little more: the sum of floats may fall short of an hour.
    clock.now += 10.1
    heartbeat.tick()
    group.refresh_from_db()
    assert group.last_declared_at - before > timedelta(days=7)


def test_a_worker_whose_row_was_purged_registers_again(heartbeat, clock):
    """As after an hour without the database."""
    Worker.objects.all().delete()

    heartbeat.tick()

    assert [WORKER] == list(Worker.objects.values_list("name", flat=True))


def test_one_worker_leads_until_its_term_is_over(link, leases, clock, new_cursor):
    """Then another may."""
    first, second = (make_heartbeat(link, leases, name) for name in ("a", "b"))
    for heartbeat in (first, second, first):
        heartbeat.register()
        heartbeat.tick()
        clock.now += ROW_INTERVAL_SECONDS
    assert (True, False) == (first.leader.leads, second.leader.leads)

    new_cursor().execute(
        "UPDATE pgqueue_worker SET leader_until = now() - interval '1s'"
    )
    second.tick()
    first.tick()

    assert (False, True) == (first.leader.leads, second.leader.leads)
    assert timedelta(seconds=2 * ROW_INTERVAL_SECONDS) < LEADER_TERM


# The listener's proof ----------------------------------------------------------------


@pytest.fixture
def listener(new_cursor):
    """A listener that listens, on a link of its own."""
    from django_pgqueue.postgres.connect import Link

    link = Link("default", name="tests: listener")
    listener = Listener(link, Wakes(QueuePlan(), threading.Event()))
    listener._listening_on = object()
    yield listener
    link.drop()


def test_it_sends_the_listeners_token_on_its_own_connection(
    link, leases, listener, cursor
):
    """So the way through the server is proved."""
    listen(cursor, [listener.own_channel])
    heartbeat = make_heartbeat(link, leases, listener=listener)

    heartbeat.tick()

    (heard,) = cursor.connection.notifies(timeout=10, stop_after=1)
    assert listener._token == heard.payload


def test_a_token_that_cannot_be_sent_is_taken_back(link, leases, listener, monkeypatch):
    """The listener is not deaf for that."""

    def prove(*args, **options):
        raise psycopg.OperationalError("gone")

    monkeypatch.setattr(module.wake, "prove", prove)
    heartbeat = make_heartbeat(link, leases, listener=listener)

    with pytest.raises(psycopg.OperationalError):
        heartbeat.tick()

    assert listener._token is None


# Cancels -----------------------------------------------------------------------------


def ask_to_stop(job):
    Job.objects.filter(pk=job.id).update(cancel_requested_at=Now())


def test_a_cancel_is_heard_with_the_next_look(heartbeat, claim_all, leases, clock):
    """Once a second without a hint; only the job that is meant hears it."""
    make_jobs(2)
    meant, other = claim_all()
    heartbeat.tick()
    ask_to_stop(meant)

    heartbeat.tick()
    assert not leases.get(meant).is_cancelled
    clock.now += 1.0
    heartbeat.tick()

    assert leases.get(meant).is_cancelled
    assert not leases.get(other).is_cancelled


def test_a_hint_makes_it_look_at_once_and_a_flood_of_them_now_and_then(
    heartbeat, claim_all, leases, clock
):
    """Twenty times a second at most, whoever notifies in a loop."""
    make_job()
    (job,) = claim_all()
    heartbeat.tick()
    ask_to_stop(job)

    heartbeat.hint_cancel()
    assert 0.05 == pytest.approx(heartbeat.tick())
    assert not leases.get(job).is_cancelled
    clock.now += 0.06
    heartbeat.tick()

    assert leases.get(job).is_cancelled


def test_a_job_that_somebody_else_has_is_not_told(heartbeat, claim_all, leases, clock):
    """The request is the other one's to hear."""
    make_job()
    (job,) = claim_all()
    Job.objects.update(deliveries=2, leased_by="somebody", cancel_requested_at=Now())
    clock.now += 1.0

    heartbeat.tick()

    assert not leases.get(job).is_cancelled


def test_an_extended_lease_is_left_alone_until_it_is_short(
    heartbeat, claim_all, leases, clock
):
    """It lasts longer than a renewal would make it."""
    make_job()
    (job,) = claim_all()
    held = leases.get(job)
    held.valid_until = clock.now + 600
    clock.now += LEASE_SECONDS
    heartbeat.tick()
    assert held.renewed_at < clock.now

    clock.now += 600 - LEASE_SECONDS - LEASE_SECONDS / 2
    heartbeat.tick()
    assert clock.now == held.renewed_at
    assert held.valid_until >= clock.now + LEASE_SECONDS
