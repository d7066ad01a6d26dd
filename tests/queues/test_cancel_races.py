"""Cancel, claim, settle, rescue and redrive of the same jobs, all at once."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.queues.cancel import cancel
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.enqueue import Placement
from django_pgqueue.queues.lease import cancel_requests, rescue
from django_pgqueue.queues.redrive import redrive
from django_pgqueue.queues.settle import Ended, ack, dead_letter, retry
from django_pgqueue.queues.settle import cancel as settle_cancelled
from django_pgqueue.queues.unique import Dedup, store_unique
from tests.harness.factories import LEASE, make_jobs

PLACEMENT = Placement(
    queue="default", task="tests.noop", headers="{}", priority=0, max_attempts=5
)

# What enters or leaves one of the three tables, in the order of the row's locks.
HISTORY = """
CREATE TABLE history (place bigserial, id bigint, what text);
CREATE FUNCTION note_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO history (id, what)
    VALUES (coalesce(NEW.id, OLD.id), TG_ARGV[0] || ' ' || lower(TG_OP));
    RETURN NULL;
END $$;
CREATE TRIGGER history AFTER INSERT OR DELETE ON pgqueue_job
    FOR EACH ROW EXECUTE FUNCTION note_history('job');
CREATE TRIGGER history AFTER INSERT OR DELETE ON pgqueue_archived_job
    FOR EACH ROW EXECUTE FUNCTION note_history('archive');
CREATE TRIGGER history AFTER INSERT OR DELETE ON pgqueue_dead_letter
    FOR EACH ROW EXECUTE FUNCTION note_history('dead');
"""
HISTORY_BACK = """
DROP TRIGGER history ON pgqueue_job;
DROP TRIGGER history ON pgqueue_archived_job;
DROP TRIGGER history ON pgqueue_dead_letter;
DROP FUNCTION note_history();
DROP TABLE history;
"""
HISTORIES = """
SELECT id, array_agg(what ORDER BY place) FROM history GROUP BY id
"""

LEGAL = {
    ("job insert",),
    ("job delete", "archive insert"),
    ("job delete", "dead insert"),
    ("dead delete", "job insert"),
    # Of one with a dedup key, which goes only if nobody else has that.
    ("job insert", "dead delete"),
}

# Every job has a key of its own, of those that others enqueue by.
KEY_ALL = """
UPDATE pgqueue_job
   SET dedup_key = pgqueue_dedup_key('tests.noop', to_jsonb(id::text)),
       queued_key = pgqueue_dedup_key('tests.noop', to_jsonb(id::text))
"""
KEYS_HELD = """
SELECT count(dedup_key), count(DISTINCT dedup_key) FROM pgqueue_job
"""

JOBS = 500
ROUNDS = 150
WORKERS = ("w0", "w1", "w2")
SETTLES = {
    "stop": settle_cancelled,
    "retry": retry,
    "dead": dead_letter,
    "ack": ack,
}


@pytest.fixture
def history(cursor):
    """Everything that happens to the jobs is written down."""
    cursor.execute(HISTORY)
    yield
    cursor.execute(HISTORY_BACK)


class Race:
    """What five kinds of actors do to the same jobs, and what they were told."""

    def __init__(self, new_cursor, ids, has_keys):
        self.has_keys = has_keys
        self.new_cursor = new_cursor
        self.ids = ids
        self.over = threading.Event()
        self.told = Counter()

    def work(self, name):
        """Claim and settle, a fixed number of times."""
        cursor = self.new_cursor()
        for turn in range(ROUNDS):
            jobs = claim(cursor, queues=["default"], worker=name, limit=20, lease=LEASE)
            held = [(job.id, job.delivery) for job in jobs]
            asked = cancel_requests(cursor, worker=name, leases=held)
            settled = 0
            for kind, ended in self.outcomes(jobs, asked, turn).items():
                settled += len(SETTLES[kind](cursor, worker=name, ended=ended))
            self.told["stale"] += len(jobs) - settled

    def outcomes(self, jobs, asked, turn):
        """Return what becomes of the jobs: mostly failures, so that they go round."""
        kinds = {kind: [] for kind in SETTLES}
        for place, job in enumerate(jobs, start=turn):
            kind = ("dead", "retry")[place % 2] if place % 24 else "ack"
            if job.cancel_requested or job.id in asked:
                kind = "stop"
            kinds[kind].append(Ended(job.id, job.delivery, reason="exhausted"))
        return kinds

    def cancel_some(self, number):
        cursor = self.new_cursor()
        for turn in count(number * 31, 7):
            if self.over.wait(0.002):
                return
            start = turn % JOBS
            with cursor.connection.transaction():
                answer = cancel(cursor, self.ids[start : start + 5], by="operator")
            self.told["cancelled"] += len(answer.cancelled)
            self.told["requested"] += len(answer.requested)

    def rescue_all(self):
        cursor = self.new_cursor()
        while not self.over.wait(0.003):
            for name in WORKERS:
                cursor.execute(
                    "SELECT id, deliveries FROM pgqueue_job WHERE leased_by = %s",
                    [name],
                )
                found = rescue(
                    cursor,
                    worker=name,
                    running=cursor.fetchall(),
                    lease=LEASE,
                    message="told so",
                )
                self.told["rescued"] += sum(not job.is_locked for job in found)

    def redrive_all(self):
        cursor = self.new_cursor()
        while not self.over.wait(0.002):
            with cursor.connection.transaction():
                self.told["redriven"] += len(redrive(cursor, self.ids))

    def enqueue_by_keys(self, number):
        """Store jobs by the keys of the others, two in a transaction, in order."""
        cursor = self.new_cursor()
        for turn in count(number * 17, 13):
            if self.over.wait(0.001):
                return
            with cursor.connection.transaction():
                for place in sorted({turn % JOBS, turn * 7 % JOBS}):
                    dedup = Dedup(
                        hold="queued",
                        conflict=("skip", "replace", "reschedule")[turn % 3],
                        by=f'"{self.ids[place]}"',
                    )
                    stored = store_unique(
                        cursor, PLACEMENT, dedup, args="[]", kwargs="{}", locks=True
                    )
                    self.told[stored.conflict or "stored"] += 1

    def run(self):
        """Let all of them loose; raise what any of them raised."""
        with ThreadPoolExecutor(10) as pool:
            workers = [pool.submit(self.work, name) for name in WORKERS]
            others = [
                pool.submit(self.cancel_some, 0),
                pool.submit(self.cancel_some, 1),
                pool.submit(self.rescue_all),
                pool.submit(self.redrive_all),
            ]
            if self.has_keys:
                others += [pool.submit(self.enqueue_by_keys, n) for n in range(2)]
            try:
                for future in workers:
                    future.result(60)
            finally:
                self.over.set()
            for future in others:
                future.result(60)


def is_legal(steps):
    """Tell whether the first step, and then each pair, is a legal one."""
    pairs = [tuple(steps[:1])]
    pairs += [tuple(steps[n : n + 2]) for n in range(1, len(steps), 2)]
    return set(pairs) <= LEGAL


@pytest.mark.slow
@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("has_keys", [False, True], ids=["plain", "keys"])
def test_everybody_moves_the_same_jobs_at_once(new_cursor, cursor, has_keys):
    """
    Nobody deadlocks or fails, and every job's history is a legal one.

    A job leaves the queue only into the archive or the dead letters, each in one step,
    and only a redrive of a dead letter brings it back. That holds where others enqueue
    by the same dedup keys, too.
    """
    ids = make_jobs(JOBS)
    if has_keys:
        cursor.execute(KEY_ALL)
    race = Race(new_cursor, ids, has_keys)

    race.run()

    cursor.execute(HISTORIES)
    histories = dict(cursor.fetchall())
    assert {} == {id_: steps for id_, steps in histories.items() if not is_legal(steps)}
    assert set(ids) <= set(histories)
    assert has_keys or len(ids) == len(histories)
    ended = (Job, ArchivedJob, DeadLetter)
    assert sorted(histories) == sorted(
        id_ for model in ended for id_ in model.objects.values_list("pk", flat=True)
    )
    # Each of them did bite.
    bites = {"stale", "cancelled", "requested", "rescued", "redriven"}
    if has_keys:
        bites |= {"stored", "skipped", "replaced", "rescheduled", "superseded"}
        held, distinct = cursor.execute(KEYS_HELD).fetchone()
        assert held == distinct
        superseded = ArchivedJob.objects.filter(
            errors__contains=[{"kind": "superseded"}]
        ).count()
        race.told["superseded"] = superseded
    assert bites == set(+race.told)
