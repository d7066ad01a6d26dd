"""Heartbeat: leases are renewed in time, the worker's row is kept, a leader elected."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db.models.functions import Now

from django_pgqueue.models import Job, Worker
from django_pgqueue.queues import workers
from django_pgqueue.worker.chores import heartbeat as module
from django_pgqueue.worker.chores.counting import Counting
from django_pgqueue.worker.chores.heartbeat import (
    LEADER_TERM,
    ROW_INTERVAL_SECONDS,
    Heartbeat,
)
from django_pgqueue.worker.chores.scheduler import Scheduler
from django_pgqueue.worker.claim.listener import Listener, Wakes
from django_pgqueue.worker.lease import leases as leases_module
from django_pgqueue.worker.lease.leases import ASK_AGAIN_SECONDS, Leases
from django_pgqueue.worker.queue_plan import QueuePlan
from django_pgqueue.worker.tally import Tally
from tests.harness.factories import make_job, make_jobs

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
    monkeypatch.setattr(leases_module, "time", clock)
    return clock


@pytest.fixture
def claim_all(claim_all, leases, clock):
    """As ever, but by the clock of the test: a machine may be slow in between."""

    def claimed(*args, **options):
        jobs = claim_all(*args, **options)
        for held in filter(None, map(leases.get, jobs)):
            held.claimed_at = clock.now - 1.0
            held.valid_until = held.claimed_at + LEASE_SECONDS
        return jobs

    return claimed


def make_heartbeat(link, leases, listener=None):
    """Return a heartbeat whose leadership and registrations can be seen."""
    leader = SimpleNamespace(leads=None)
    leader.set_leading = lambda leads: setattr(leader, "leads", leads)

    def register(cursor):
        workers.register(
            cursor,
            name=leases.worker,
            hostname="h",
            pid=1,
            queues=[],
            threads=1,
            version="0",
        )

    heartbeat = Heartbeat(
        link,
        leases=leases,
        register=register,
        leader=leader,
        scheduler=Scheduler(link),
        promoter=SimpleNamespace(set_leading=lambda is_leading: None),
        listener=listener,
        counting=Counting(Tally()),
    )
    with link.cursor() as cursor:
        register(cursor)
    heartbeat.leader = leader
    return heartbeat


@pytest.fixture
def heartbeat(link, leases, clock):
    return make_heartbeat(link, leases)


def lease_end(job):
    return Job.objects.get(pk=job.id).visible_at


# Leases ------------------------------------------------------------------------------


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
    ends = {held.valid_until for held in leases.all()}
    assert {clock.now + LEASE_SECONDS} == ends
    assert {1} == {job.deliveries for job in Job.objects.all()}


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

    renewed_until = clock.now + LEASE_SECONDS
    assert renewed_until == leases.get(free).valid_until
    assert renewed_until > leases.get(locked).valid_until
    assert not leases.get(locked).is_lost
    assert 1.0 == heartbeat.tick()
    assert renewed_until == leases.get(locked).valid_until


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


def test_one_worker_leads_until_its_term_is_over(link, leases, clock, new_cursor):
    """Then another may."""
    first, second = (make_heartbeat(link, Leases(60.0, name)) for name in ("a", "b"))
    for heartbeat in (first, second, first):
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
