"""Settler: outcomes are written in batches, each once, whatever the database says."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import psycopg
import pytest

from django_pgqueue import batch, signals
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Output
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.postgres.wake import channel, listen
from django_pgqueue.queues.waited import channel as waited_channel
from django_pgqueue.tasks.outcome import (
    Cancelled,
    Expired,
    GaveUp,
    Performed,
    Retried,
    Succeeded,
)
from django_pgqueue.worker.settle import settler as module
from django_pgqueue.worker.settle.settler import Settlement, Settler
from tests.app.tasks import noop
from tests.harness.factories import make_dead_letter, make_job, make_jobs
from tests.harness.notices import heard_until_now
from tests.harness.waiting import wait_for
from tests.worker.conftest import WORKER

NOOP = noop.name
DONE = Performed(Succeeded(), None, 0.5)
AGAIN = timedelta(seconds=30)


@pytest.fixture
def retries():
    """The delays that the claimer is told of."""
    return []


@pytest.fixture
def settler(link, leases, retries):
    settler = Settler(link, leases)
    settler.on_retry = retries.append
    return settler


@pytest.fixture
def writes(monkeypatch):
    """The kinds of the statements that are sent, and how many rows each has."""
    writes = []

    def recorded(kind, write):
        def call(cursor, *, worker, ended):
            writes.append((kind, len(ended)))
            return write(cursor, worker=worker, ended=ended)

        return call

    for kind, write in list(module.KINDS.items()):
        monkeypatch.setitem(module.KINDS, kind, recorded(kind, write))
    return writes


@pytest.fixture
def stale():
    """What settle_stale tells."""
    heard = []

    def receiver(sender, signal, **fields):
        heard.append(fields)

    signals.settle_stale.connect(receiver)
    yield heard
    signals.settle_stale.disconnect(receiver)


def settle(settler, jobs, performed=DONE):
    for job in jobs:
        settler.put(Settlement(job, performed))


# Batches -----------------------------------------------------------------------------


def test_what_is_waiting_is_one_statement_per_kind(
    settler, writes, claim_all, leases, retries
):
    """However many jobs ended; each is where its outcome says."""
    make_jobs(9, task=NOOP)
    jobs = claim_all()
    outcomes = [
        Performed(Succeeded(), None, 0.5, "1"),
        Performed(Succeeded(), None, 0.5, "2"),
        Performed(Retried(AGAIN), ValueError("x"), 0.5),
        Performed(Succeeded(), None, 0.5),
        Performed(GaveUp("exhausted"), ValueError("y"), 0.5),
        Performed(GaveUp("rejected"), None, 0.5),
        Performed(Expired()),
        Performed(Retried(timedelta(0), gives_attempt_back=True, is_failure=False)),
        None,
    ]
    for job, performed in zip(jobs, outcomes, strict=True):
        settler.put(Settlement(job, performed))

    assert not settler.wait_until_idle(0)
    assert 0.0 == settler.tick()
    assert settler.wait_until_idle(0)

    assert [("ack", 3), ("retry", 2), ("dead", 2), ("expire", 1)] == writes
    ids = [job.id for job in jobs]
    archived = dict(ArchivedJob.objects.values_list("pk", "state"))
    assert {
        **dict.fromkeys([ids[0], ids[1], ids[3]], "succeeded"),
        ids[6]: "expired",
    } == archived
    assert [1, 2, None] == [
        ArchivedJob.objects.get(pk=ids[n]).result for n in (0, 1, 3)
    ]
    assert {ids[4]: "exhausted", ids[5]: "rejected"} == dict(
        DeadLetter.objects.values_list("pk", "reason")
    )
    assert {ids[2]: 1, ids[7]: 0, ids[8]: 0} == dict(
        Job.objects.values_list("pk", "attempt")
    )
    assert {"ack": 3, "retry": 2, "dead": 2, "expire": 1} == settler.counts
    assert [30.0, 0.0] == retries
    assert 0 == len(leases)


def test_an_error_is_dated_by_the_clock_of_the_database(settler, claim_all, cursor):
    """The claim's time, plus what passed since by our own clock."""
    make_job()
    (job,) = claim_all()
    settle(settler, [job], Performed(GaveUp("exhausted"), ValueError("x"), 0.5))
    settler.tick()

    (entry,) = DeadLetter.objects.get().errors
    cursor.execute(
        "SELECT abs(extract(epoch FROM now() - %s::timestamptz)) < 5", [entry["at"]]
    )
    assert (True,) == cursor.fetchone()
    assert (WORKER, "x") == (entry["worker"], entry["message"])


@pytest.fixture
def woken(other_cursor):
    """A function that waits for a wake, and returns whose."""
    listen(other_cursor, [channel(other_cursor)])

    def woken():
        (heard,) = other_cursor.connection.notifies(timeout=10, stop_after=1)
        return heard.payload

    return woken


AT_ONCE = Performed(Retried(timedelta(0)), ValueError("x"), 0.5)


@pytest.mark.parametrize("performed", [None, AT_ONCE], ids=["release", "retry"])
def test_others_are_woken_although_the_connection_dies_before(
    settler, claim_all, woken, monkeypatch, performed
):
    """After the write and before its NOTIFY: another one wakes them."""
    make_job(queue="mail")
    settle(settler, claim_all(queues=["mail"]), performed)
    with monkeypatch.context() as broken:
        broken.setattr(module.wake, "wake", cut)
        assert settler._tick_safely() > 0
    assert Job.objects.get().leased_by is None
    assert not settler.wait_until_idle(0)

    settler._tick_safely()

    assert "mail" == woken()
    assert settler.wait_until_idle(0)
    assert 0 == settler.counts["stale"]


def cut(cursor, queues):
    cursor.connection.close()
    raise psycopg.OperationalError("server closed the connection unexpectedly")


def test_a_wake_that_the_server_refuses_keeps_no_outcome(
    settler, claim_all, monkeypatch, caplog
):
    """It is a hint; the outcome is written, and is not stale."""
    make_job(queue="mail")
    settle(settler, claim_all(queues=["mail"]), AT_ONCE)
    monkeypatch.setattr(module.wake, "NOTIFY", "SELECT pg_notify(no_such_channel())")

    assert 0.0 == settler._tick_safely()

    assert (1, 0) == (settler.counts["retry"], settler.counts["stale"])
    assert settler.wait_until_idle(0)
    assert 1 == caplog.text.count("unwoken    queues=mail")


# Who waits ---------------------------------------------------------------------------


@pytest.fixture
def waited(settler):
    return settler.waited


@pytest.fixture
def told(other_cursor):
    """A function that returns what was told of ends since it was last called."""
    listen(other_cursor, [name := waited_channel(other_cursor)])
    return lambda: heard_until_now(other_cursor.connection, name)


def wait_for_jobs(waited, jobs):
    waited.note("!wait:" + ",".join(str(job.id) for job in jobs))


SUCCEEDED = Performed(Succeeded(), None, 0.5, "1")


@pytest.mark.parametrize(
    "performed",
    [
        *(DONE, SUCCEEDED, Performed(Succeeded(), leaves_no_trace=True)),
        *(Performed(GaveUp("rejected")), Performed(Expired()), Performed(Cancelled())),
    ],
    ids=lambda performed: type(performed.outcome).__name__,
)
def test_who_waits_for_a_job_is_told_of_its_end(
    settler, claim_all, waited, told, performed
):
    """Once, and of those alone that he waits for; whatever has become of them."""
    make_jobs(3, task=NOOP)
    jobs = claim_all()
    wait_for_jobs(waited, jobs[:1])
    settle(settler, jobs, performed)

    settler.tick()
    assert [str(jobs[0].id)] == told()
    settler.tick()
    assert [] == told()
    assert settler.wait_until_idle(0)


@pytest.mark.parametrize("committed", [True, False])
def test_an_atomic_job_has_ended_if_its_transaction_was_committed(
    settler, claim_all, waited, told, committed
):
    """It has written its own ack."""
    make_job(task=NOOP)
    jobs = claim_all()
    wait_for_jobs(waited, jobs)
    settler.put(Settlement(jobs[0], DONE, committed=committed))

    settler.tick()

    assert ([str(jobs[0].id)] if committed else []) == told()


# Locks of others ---------------------------------------------------------------------


@pytest.fixture
def impatient(transactional_db, leases, retries, monkeypatch):
    """A settler that waits 50 ms for a lock, and tells of it at once."""
    monkeypatch.setattr(module, "HELD_TOLD_SECONDS", 0.0)
    link = Link("default", name="tests: settler", steady=True, lock_seconds=0.05)
    yield Settler(link, leases)
    link.drop()


# Locks the row of a job, or of its workflow.
LOCKS = {
    "job": "SELECT FROM pgqueue_job WHERE id = %s FOR UPDATE",
    "workflow": "SELECT FROM pgqueue_workflow w JOIN pgqueue_job j"
    " ON j.workflow_id = w.id WHERE j.id = %s FOR UPDATE OF w",
}


@pytest.mark.parametrize("locks", LOCKS)
def test_a_locked_row_keeps_nobody_elses_job_waiting(
    impatient, claim_all, other_cursor, caplog, locks
):
    """It is settled when the lock is gone; meanwhile the log says who has it."""
    make_jobs(3, task=NOOP)
    with batch() as members:
        members.add(noop)
    jobs = claim_all()
    locked = jobs[-1]
    settle(impatient, jobs)
    other_cursor.execute("BEGIN")
    other_cursor.execute(LOCKS[locks], [locked.id])

    impatient.tick()

    assert [locked.id] == list(Job.objects.values_list("pk", flat=True))
    assert impatient.has(locked)
    pid = other_cursor.connection.info.backend_pid
    told = f"held up    jobs=1 first={locked.id} task={NOOP} pid={pid}:"
    wait_for(lambda: impatient.tick() or told in caplog.text)
    other_cursor.execute("ROLLBACK")
    wait_for(lambda: impatient.tick() or impatient.wait_until_idle(0))
    assert {"ack": 4} == impatient.counts


def test_what_was_written_before_a_lock_was_met_is_not_stale(
    impatient, claim_all, other_cursor
):
    """Of one batch, those without a result are written by a statement of their own."""
    make_jobs(2, task=NOOP)
    plain, locked = claim_all()
    settle(impatient, [plain])
    settle(impatient, [locked], SUCCEEDED)
    other_cursor.execute("BEGIN")
    other_cursor.execute(LOCKS["job"], [locked.id])

    impatient.tick()

    other_cursor.execute("ROLLBACK")
    wait_for(lambda: impatient.tick() or impatient.wait_until_idle(0))
    assert {"ack": 2} == impatient.counts


class Moving(list):
    """Outcomes that are asked for while they come back from those put aside."""

    def __init__(self, settler, job):
        self.is_found = None
        self._settler, self._job = settler, job

    def __iadd__(self, items):
        self.is_found = self._settler.has(self._job), self._settler.wait_until_idle(0)
        return [*self, *items]


def test_what_was_put_aside_is_never_out_of_sight(impatient, claim_all, other_cursor):
    """Else a job that is about to be settled would be settled as failed."""
    make_jobs(1, task=NOOP)
    (locked,) = claim_all()
    settle(impatient, [locked])
    other_cursor.execute("BEGIN")
    other_cursor.execute(LOCKS["job"], [locked.id])
    impatient.tick()
    impatient._batch = moving = Moving(impatient, locked)

    wait_for(lambda: impatient.tick() or moving.is_found)

    assert (True, False) == moving.is_found
    other_cursor.execute("ROLLBACK")


# Stale settles -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "performed, kind",
    [
        (DONE, "ack"),
        (Performed(Retried(AGAIN), ValueError()), "retry"),
        (Performed(GaveUp("rejected")), "dead"),
        (Performed(Expired()), "expire"),
        (None, "release"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_lease_that_was_taken_over_is_told_and_not_written(
    settler, claim_all, leases, stale, caplog, performed, kind
):
    """Its neighbours in the batch are settled."""
    make_jobs(2, task=NOOP)
    lost, kept = claim_all()
    Job.objects.filter(pk=lost.id).update(leased_by="other", deliveries=2)
    settle(settler, [lost, kept], performed)

    settler.tick()

    job = Job.objects.get(pk=lost.id)
    assert ("other", 2, 1) == (job.leased_by, job.deliveries, job.attempt)
    assert [{"job_id": lost.id, "delivery": 1, "kind": kind}] == stale
    assert 1 == settler.counts["stale"]
    assert [f"stale      job={lost.id}"] == [
        message[: len(f"stale      job={lost.id}")]
        for message in caplog.messages
        if message.startswith("stale")
    ]
    assert 0 == len(leases)
    assert settler.wait_until_idle(0)


# What the database refuses -----------------------------------------------------------


def test_a_missing_day_of_the_archive_is_made(settler, claim_all, cursor, caplog):
    """Without a word to anybody: no ack is lost for it."""
    cursor.execute("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date")
    (today,) = cursor.fetchone()
    cursor.execute(f"DROP TABLE {ARCHIVE.name_of(today)}")
    make_jobs(2)
    settle(settler, claim_all())

    settler.tick()

    assert 2 == ArchivedJob.objects.count()
    assert [] == caplog.records


POISON = '{"a": "\\u0000"}'


def test_a_row_that_the_database_refuses_is_settled_alone(settler, claim_all, caplog):
    """Without what it would have stored; its neighbours with theirs."""
    make_jobs(3)
    jobs = claim_all()
    for job, result in zip(jobs, ["1", POISON, "3"], strict=True):
        settle(settler, [job], Performed(Succeeded(), None, 0.5, result))

    settler.tick()

    assert [1, None, 3] == list(
        ArchivedJob.objects.order_by("pk").values_list("result", flat=True)
    )
    assert settler.wait_until_idle(0)
    (record,) = caplog.records
    assert logging.ERROR == record.levelno
    assert f"refused    job={jobs[1].id}" in record.getMessage()


def test_a_row_that_cannot_be_written_at_all_is_left_to_its_lease(
    settler, claim_all, leases, caplog
):
    """Somebody inserted it with the id of a dead letter; its neighbours are settled."""
    dead = make_dead_letter()
    make_job(id=dead.pk)
    make_job()
    settle(settler, claim_all(), Performed(GaveUp("rejected"), None, 0.5))

    settler._tick_safely()

    assert settler.wait_until_idle(0)
    assert 2 == DeadLetter.objects.count()
    assert [dead.pk] == list(Job.objects.values_list("pk", flat=True))
    assert f"unsettled  job={dead.pk} " in caplog.text
    assert 0 == len(leases)
    assert (1, 1) == (settler.counts["dead"], settler.counts["unsettled"])


def test_an_outcome_that_cannot_be_put_into_words_is_written_without_them(
    settler, claim_all, monkeypatch, caplog
):
    """Whatever raises there, the attempt ends; and so do those beside it."""
    make_jobs(2)
    odd, plain = claim_all()
    real = module.ended

    def ended(job, performed, **options):
        if performed.error is not None:
            raise RuntimeError("no words")
        return real(job, performed, **options)

    monkeypatch.setattr(module, "ended", ended)
    settle(settler, [odd], Performed(GaveUp("rejected"), ValueError("x"), 0.5))
    settle(settler, [plain], Performed(GaveUp("rejected"), None, 0.5))

    assert 0.0 == settler._tick_safely()

    assert 2 == DeadLetter.objects.count()
    assert f"failed     loop=settler job={odd.id}: its error" in caplog.messages


def test_a_batch_that_takes_too_long_is_written_in_parts(
    settler, claim_all, monkeypatch
):
    """The role has a statement_timeout: half as many, until they are quick enough."""
    asked = []
    real = module.KINDS["ack"]

    def ack(cursor, *, worker, ended):
        asked.append(len(ended))
        if len(ended) > 3:
            raise psycopg.errors.QueryCanceled("statement timeout")
        return real(cursor, worker=worker, ended=ended)

    monkeypatch.setitem(module.KINDS, "ack", ack)
    make_jobs(10)
    settle(settler, claim_all())

    pauses = [settler._tick_safely() for _ in range(3)]

    assert ([10, 5, 2, 2, 2, 2, 2], 0.0) == (asked, pauses[-1])
    assert (10, 0) == (ArchivedJob.objects.count(), settler.counts["stale"])


# Lost answers ------------------------------------------------------------------------


class Cut:
    """A statement whose connection breaks: before it is applied, or after."""

    def __init__(self, monkeypatch, kind, when, then=lambda: None):
        self.real, self.when, self.then = module.KINDS[kind], when, then
        self.calls = 0
        monkeypatch.setitem(module.KINDS, kind, self)

    def __call__(self, cursor, **options):
        self.calls += 1
        if self.calls > 1:
            return self.real(cursor, **options)
        if self.when == "after":
            self.real(cursor, **options)
        cursor.connection.close()
        self.then()
        raise psycopg.OperationalError("server closed the connection unexpectedly")


OUTCOMES = {
    "ack": (DONE, ArchivedJob),
    "dead": (Performed(GaveUp("rejected"), None, 0.5), DeadLetter),
    "retry": (Performed(Retried(AGAIN), ValueError("x"), 0.5), Job),
    "expire": (Performed(Expired()), ArchivedJob),
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_an_outcome_without_an_answer_is_settled_once(
    settler, claim_all, monkeypatch, stale, kind, when
):
    """Whether the write had been applied or not; and it is no stale one."""
    performed, table = OUTCOMES[kind]
    make_jobs(2, task=NOOP)
    settle(settler, claim_all(), performed)
    Cut(monkeypatch, kind, when)

    assert settler._tick_safely() > 0
    assert not settler.wait_until_idle(0)
    assert 0.0 == settler._tick_safely()

    assert settler.wait_until_idle(0)
    assert 2 == table.objects.count()
    assert (2, 0) == (settler.counts[kind], settler.counts["stale"])
    assert [] == stale
    if kind == "retry":
        assert [1, 1] == [len(job.errors) for job in Job.objects.all()]


# Cancels, words and transactions -----------------------------------------------------


def test_a_cancelled_job_is_archived_and_told(settler, claim_all, leases):
    """With the error that it ended with, if any."""
    heard = []

    def receiver(sender, job, **fields):
        heard.append(job.id)

    make_jobs(2, task=NOOP)
    jobs = claim_all()
    signals.job_cancelled.connect(receiver)
    try:
        settle(settler, jobs[:1], Performed(Cancelled()))
        settle(settler, jobs[1:], Performed(Cancelled(), ValueError("half-way"), 0.5))
        settler.tick()
    finally:
        signals.job_cancelled.disconnect(receiver)

    assert [job.id for job in jobs] == heard
    rows = ArchivedJob.objects.order_by("pk")
    assert [("cancelled", 0), ("cancelled", 1)] == [
        (row.state, len(row.errors)) for row in rows
    ]
    assert {"cancel": 2} == settler.counts
    assert 0 == len(leases)


def test_what_was_said_last_is_written_with_the_settle(settler, claim_all):
    """The report, and what was emitted, wherever the row goes."""
    make_jobs(3)
    jobs = claim_all()
    for n, outcome in enumerate([Succeeded(), GaveUp("rejected"), Retried(AGAIN)]):
        performed = Performed(outcome, None, 0.5, progress=json.dumps({"done": n}))
        performed.emitted = [(1, str(n)), (2, str(n + 10))]
        settler.put(Settlement(jobs[n], performed))

    settler.tick()

    assert [{"done": 0}, {"done": 1}, {"done": 2}] == [
        model.objects.get().progress for model in (ArchivedJob, DeadLetter, Job)
    ]
    rows = Output.objects.order_by("job_id", "sequence")
    assert [0, 10, 1, 11, 2, 12] == [row.value for row in rows]


def test_a_word_leaves_its_task_to_be_waited_for(settler, claim_all, leases):
    """Its lease is gone; what it comes to is only noted."""
    make_job(task=NOOP)
    (job,) = claim_all()
    word = Settlement(job, Performed(Succeeded()), goes_on=True)
    settler.put(word)
    settler.tick()
    assert (True, [], 1) == (word.is_written, leases.all(), len(leases))

    settle(settler, [job], Performed(Succeeded(), ValueError("late"), 0.5, result="5"))
    settler.tick()

    row = ArchivedJob.objects.get()
    assert ("succeeded", 5, ["late"]) == (
        row.state,
        row.result,
        [entry["message"] for entry in row.errors],
    )
    assert 0 == len(leases)
    assert {"ack": 1} == settler.counts


@pytest.mark.parametrize("told, counts", [(True, {"ack": 1}), (False, {"stale": 1})])
def test_what_a_transaction_has_settled_is_counted_and_not_written(
    settler, writes, claim_all, leases, told, counts
):
    """The task's own transaction was committed, or rolled back for a lost lease."""
    make_job(task=NOOP)
    (job,) = claim_all()
    settler.put(Settlement(job, DONE, committed=told))

    settler.tick()

    assert ([], counts, 0) == (writes, dict(settler.counts), len(leases))
    assert 1 == Job.objects.count()
