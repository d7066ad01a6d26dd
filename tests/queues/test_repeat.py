"""Calls that meet a late job: one job a key, no call lost, and nobody waits."""

from __future__ import annotations

import itertools
import os
import random

import pytest

from django_pgqueue.models import DedupCall, Job
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.enqueue import Placement
from django_pgqueue.queues.lease import release
from django_pgqueue.queues.settle import Ended, ack, retry
from django_pgqueue.queues.unique import (
    Dedup,
    Repeated,
    Stored,
    repeat_calls,
    store_unique,
)
from tests.harness.factories import LEASE

# Interleavings of the model, each with a seed of its own.
SEEDS = int(os.environ.get("PGQUEUE_UNIQUE_SEEDS", "15"))

PLACEMENT = Placement(
    queue="default", task="tests.noop", headers="{}", priority=0, max_attempts=5
)
AGE = "UPDATE pgqueue_job SET visible_at = visible_at - interval '1 h' WHERE id = %s"


def call(cursor, key="k", *, hold="queued", conflict="skip", args="[]", **rule):
    """Call in whatever transaction *cursor* has; what it stores is late at once."""
    dedup = Dedup(hold=hold, conflict=conflict, by=f'"{key}"', **rule)
    stored = store_unique(cursor, PLACEMENT, dedup, args=args, kwargs="{}", locks=True)
    if stored.conflict is None:
        cursor.execute(AGE, [stored.id])
    return stored


def claim_all(cursor, limit=100):
    return claim(cursor, queues=["default"], worker="worker", limit=limit, lease=LEASE)


def outcomes(cursor):
    return [one.outcome for one in repeat_calls(cursor)]


def waiting():
    """Return the ids of the jobs that nobody has."""
    return list(
        Job.objects.filter(leased_by=None).order_by("pk").values_list("pk", flat=True)
    )


def test_a_key_has_one_job_however_late_it_is(cursor, other_cursor, new_cursor):
    """Also while transactions that have met it stay open, one after the other."""
    first = call(cursor)
    third = new_cursor()
    for _ in range(3):
        with other_cursor.connection.transaction(), third.connection.transaction():
            assert Stored(first.id, "skipped") == call(other_cursor)
            assert Stored(first.id, "skipped") == call(third)

    assert [first.id] == waiting()


def test_a_call_that_commits_after_its_job_has_started_gets_another_one(
    cursor, other_cursor
):
    """It has the call's arguments, queue and attempts, and sees what that wrote."""
    first = call(cursor)
    with other_cursor.connection.transaction():
        call(other_cursor, args="[2]")
        claim_all(cursor)
        assert [] == repeat_calls(cursor)

    (repeated,) = repeat_calls(cursor)

    assert Repeated(repeated.id, "default", "stored") == repeated
    assert first.id < repeated.id
    job = Job.objects.get(pk=repeated.id)
    assert ([2], "tests.noop", 5) == (job.args, job.task, job.max_attempts)
    assert 'tests.noop "k"' == job.dedup_key == job.queued_key
    assert not DedupCall.objects.exists()


def test_a_later_call_stands_for_the_earlier_ones(cursor, other_cursor):
    """So no more is written down than transactions are open."""
    call(cursor)
    for _ in range(5):
        call(cursor)
    assert 1 == DedupCall.objects.count()
    with other_cursor.connection.transaction(force_rollback=True):
        call(other_cursor)
        call(cursor)
        assert 2 == DedupCall.objects.count()
        claim_all(cursor)

    # It took back one that is there again: and this still has its job.
    assert ["skipped", "stored"] == sorted(outcomes(cursor))
    assert 1 == len(waiting())


def test_a_call_is_not_lost_with_the_one_that_took_it_back(cursor, other_cursor):
    """A transaction that fails gives back what it stood for."""
    call(cursor)
    call(cursor)
    with other_cursor.connection.transaction(force_rollback=True):
        call(other_cursor)
        claim_all(cursor)
        assert [] == repeat_calls(cursor)

    assert ["stored"] == outcomes(cursor)


class Model:
    """
    Callers, a worker and the one who makes calls again, in one random order.

    Nobody may wait: each step runs alone, and would hang otherwise.
    """

    def __init__(self, seed, new_cursor):
        self.random = random.Random(seed)
        self.callers = [new_cursor() for _ in range(3)]
        self.worker = new_cursor()
        self.worker.execute("SET lock_timeout = '3s'")
        self.time = itertools.count()
        # Of each caller: when it has called and not committed, and whether it stored.
        self.open = {}
        self.commits, self.starts, self.running = [], [], []

    def steps(self):
        """Return what can happen next."""
        stores = any(stored for _, stored in self.open.values())
        found = [self.start, self.start_and_hand_back, self.repeat]
        found += [self.end, self.fail] if self.running else []
        for caller in self.callers:
            if caller in self.open:
                found += [lambda c=caller: self.close(c, commits=True)] * 2
                found.append(lambda c=caller: self.close(c, commits=False))
            elif not stores:
                found += [lambda c=caller: self.call(c)] * 2
        return found

    def call(self, caller):
        caller.execute("SET lock_timeout = '3s'")
        caller.execute("BEGIN")
        told = call(caller)
        self.open[caller] = (told.id, told.conflict is None)

    def close(self, caller, *, commits):
        caller.execute("COMMIT" if commits else "ROLLBACK")
        del self.open[caller]
        if commits:
            self.commits.append(next(self.time))

    def start(self):
        for job in claim_all(self.worker):
            self.running.append(job)
            self.starts.append(next(self.time))

    def start_and_hand_back(self):
        leases = [(job.id, job.delivery, job.due_at) for job in claim_all(self.worker)]
        if not any(stored for _, stored in self.open.values()):
            release(self.worker, worker="worker", leases=leases)

    def end(self):
        job = self.running.pop()
        ack(self.worker, worker="worker", ended=[Ended(job.id, job.delivery)])

    def fail(self):
        if not any(stored for _, stored in self.open.values()):
            job = self.running.pop()
            entry = '{"kind": "error", "message": "bad luck"}'
            ended = Ended(job.id, job.delivery, ran_seconds=1.0, error=entry)
            retry(self.worker, worker="worker", ended=[ended])

    def repeat(self):
        repeat_calls(self.worker)

    def keyed(self):
        """Return how many jobs wait for the key."""
        self.worker.execute(
            "SELECT count(*) FROM pgqueue_job"
            " WHERE leased_by IS NULL AND dedup_key IS NOT NULL"
        )
        return self.worker.fetchone()[0]

    def run(self):
        """Go on for a while, then let all end; nothing may wait or be lost."""
        for _ in range(60):
            self.random.choice(self.steps())()
            assert self.keyed() <= 1
        while self.open:
            self.close(next(iter(self.open)), commits=True)
        self.repeat()
        self.start()
        assert not DedupCall.objects.exists()
        assert not self.commits or max(self.starts) > max(self.commits)


@pytest.mark.usefixtures("archive_days")
def test_no_order_of_events_loses_a_call_or_makes_two_jobs(new_cursor, cursor):
    """Many random orders of calls, commits, roll-backs, starts, ends and failures."""
    model = Model(0, new_cursor)
    for seed in range(SEEDS):
        model.random = random.Random(seed)
        model.commits, model.starts, model.running = [], [], []
        try:
            model.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        cursor.execute("DELETE FROM pgqueue_job")
