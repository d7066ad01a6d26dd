"""Queues with a limit, to the claimer: asked when there may be room, and not before."""

from __future__ import annotations

import itertools
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db.models import F

from django_pgqueue.conf import QueueLimit
from django_pgqueue.models import Queue
from django_pgqueue.queues.settle import Ended, ack
from django_pgqueue.worker.claim import queue_limits as module
from django_pgqueue.worker.claim.poller import RECHECK_SECONDS
from django_pgqueue.worker.claim.queue_limits import (
    FULL_SECONDS_MAX,
    FULL_SECONDS_MIN,
    QueueLimits,
)
from tests.harness.factories import make_jobs
from tests.worker.claim.test_claimer import POLL, WORKER, Rig

TWO = {"mail": QueueLimit(concurrency=2)}


@pytest.fixture
def rig(link, leases, monkeypatch):
    """A claimer of all queues, whose clock the limits read, too."""
    rig = Rig(link, leases, monkeypatch).serve()
    clock = SimpleNamespace(monotonic=lambda: rig.now)
    monkeypatch.setattr(module, "time", clock)
    return rig


@pytest.fixture
def asked(rig, monkeypatch):
    """When a queue with a limit was asked for what it has room for."""
    times = []
    claim_limited = module.limits.claim_limited

    def noted(*args, **terms):
        times.append(rig.now)
        return claim_limited(*args, **terms)

    monkeypatch.setattr(module.limits, "claim_limited", noted)
    return times


@pytest.fixture
def settle(rig, leases, cursor):
    """Settle a job as the worker does, and tell the claimer."""

    def settle(job):
        ack(cursor, worker=WORKER, ended=[Ended(job.id, job.delivery)])
        leases.drop(job)
        rig.claimer.settled({job.queue})

    return settle


def limit(rig, said):
    rig.claimer.limits = QueueLimits(said, poll_seconds=POLL)


def queues(jobs):
    return sorted(job.queue for job in jobs)


def test_a_queue_gives_what_it_has_room_for_and_others_give_the_rest(rig):
    """Of one look, with the capacity of one look."""
    limit(rig, TWO)
    make_jobs(9, queue="mail")
    make_jobs(20, queue="other")
    rig.capacity = 10

    rig.tick()

    assert 2 == queues(rig.put).count("mail")
    assert 10 == len(rig.put)


def test_a_queue_without_room_is_not_asked_for_a_while(rig, asked):
    """Then less and less often: others may have settled theirs."""
    limit(rig, TWO)
    make_jobs(9, queue="mail")
    rig.tick()

    ticks, start = 0, rig.now
    while rig.now < start + POLL:
        pause, _ = rig.tick()
        rig.now += pause
        ticks += 1

    gaps = [after - before for before, after in itertools.pairwise(asked)]
    steps = [FULL_SECONDS_MIN, FULL_SECONDS_MIN, 0.5, *(2 * [FULL_SECONDS_MAX])]
    assert steps == pytest.approx(gaps[:5])
    assert 2 == len(rig.put)
    assert ticks < 20


def test_who_frees_a_place_takes_it_again(rig, settle, asked):
    """At once, and nobody asks before."""
    limit(rig, TWO)
    first, _, third, *_ = make_jobs(9, queue="mail")
    rig.tick()
    rig.run_dry()
    before = len(asked)
    rig.tick()
    assert before == len(asked)

    settle(next(job for job in rig.put if job.id == first))

    assert rig.claimer.wake.is_set()
    rig.tick()
    assert third == rig.put[-1].id


def test_a_place_that_is_freed_during_the_claim_is_not_missed(rig, settle, monkeypatch):
    """The count was older than the settle: the queue is asked again."""
    limit(rig, TWO)
    make_jobs(2, queue="mail")
    rig.tick()
    one, _ = rig.put
    make_jobs(1, queue="mail")
    rig.live(3 * RECHECK_SECONDS[-1])
    rig.now += FULL_SECONDS_MAX
    counted = module.limits._room

    def late(*args):
        answer = counted(*args)
        monkeypatch.setattr(module.limits, "_room", counted)
        settle(one)
        return answer

    monkeypatch.setattr(module.limits, "_room", late)
    rig.claimer.look_now()
    rig.tick()
    rig.tick()

    assert 3 == len(rig.put)


def test_a_rate_is_asked_when_it_lets_the_next_one_go(rig):
    """The claimer sleeps until then, and is not in a hurry before."""
    limit(rig, {"mail": QueueLimit(spacing=2.0, burst=3)})
    make_jobs(9, queue="mail")
    rig.tick()
    assert 3 == len(rig.put)
    *_, pause = rig.run_dry()
    assert 0.9 < pause <= 2.0

    Queue.objects.update(full_at=F("full_at") - timedelta(seconds=2))
    rig.now += 2.0
    rig.tick()

    assert 4 == len(rig.put)
