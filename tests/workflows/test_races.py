"""Workflows: what two connections do to one at the same time."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from django_pgqueue import batch, chain, chord
from django_pgqueue.models import DeadLetter, Job, Step, Workflow
from django_pgqueue.queues import cancel as cancels
from django_pgqueue.queues import dead_letters, workflows
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.dead_letters import redrive, set_aside
from django_pgqueue.queues.settle import Ended, ack, dead_letter
from tests.app.saga_tasks import order
from tests.app.workflow_tasks import add, give, total
from tests.harness.factories import LEASE
from tests.harness.waiting import wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)

WORKER = "worker"


@pytest.fixture
def pool():
    """Threads, of which each is waited for."""
    with ThreadPoolExecutor(8) as pool:
        yield pool


def take(cursor, limit=100, worker=WORKER):
    """Claim what is due, in the order of their ids."""
    found = claim(cursor, queues=["default"], worker=worker, limit=limit, lease=LEASE)
    return sorted(found, key=lambda job: job.id)


def write(verb, cursor, *jobs, worker=WORKER, **fields):
    """Settle jobs with a result or a reason, in one statement."""
    ended = [Ended(job.id, job.delivery, **fields) for job in jobs]
    assert {job.id for job in jobs} == verb(cursor, worker=worker, ended=ended)


def call_off(cursor, workflow):
    """Cancel as WorkflowResult.cancel() does; the caller commits."""
    started = workflows.cancel(cursor, workflow)
    if started:
        cancels.cancel(cursor, started)
    return started


def states():
    """Return the states of all steps, in the order of their ids."""
    return list(Step.objects.order_by("id").values_list("state", flat=True))


def run_all(cursor):
    """Let all jobs succeed, one after the other; return their tasks."""
    ran = []
    while jobs := take(cursor, limit=1):
        write(ack, cursor, *jobs)
        ran.append(jobs[0].task.rpartition(".")[2])
    return ran


def test_the_last_two_members_of_a_chord_start_its_body_once(cursor, new_cursor, pool):
    """Whoever comes second waits for the first, and then sees both results."""
    chord([give.s(1), give.s(2)], total.s()).delay()
    first, second = take(cursor)
    other = new_cursor()

    with cursor.connection.transaction():
        write(ack, cursor, first, result="1")
        later = pool.submit(write, ack, other, second, result="2")
        wait_until_blocked(new_cursor(), other)
    later.result(20)

    job = Job.objects.get()
    assert ([[1, 2]], total.name) == (job.args, job.task)
    assert ["succeeded", "succeeded", "started"] == states()
    assert 1 == Workflow.objects.get().active


def test_who_comes_second_starts_the_body_when_the_first_rolls_back_and_repeats(
    cursor, new_cursor, pool
):
    """What was rolled back has not ended."""
    chord([give.s(1), give.s(2)], total.s()).delay()
    first, second = take(cursor)
    other = new_cursor()

    with cursor.connection.transaction(force_rollback=True):
        write(ack, cursor, first, result="1")
        later = pool.submit(write, ack, other, second, result="2")
        wait_until_blocked(new_cursor(), other)
    later.result(20)
    assert ["started", "succeeded", "waiting"] == states()
    write(ack, cursor, first, result="1")

    assert [[1, 2]] == Job.objects.get().args


def test_settles_of_several_workflows_do_not_deadlock(cursor, new_cursor, pool):
    """In whatever order their members stand in two batches."""
    chords, rounds = 20, 5
    others = new_cursor(), new_cursor()
    for _ in range(rounds):
        for _ in range(chords):
            chord([give.s(1), give.s(2)], total.s()).delay()
        jobs = take(cursor, 2 * chords)
        assert 2 * chords == len(jobs)
        barrier = threading.Barrier(2)

        def settle(other, mine, barrier=barrier):
            barrier.wait(20)
            write(ack, other, *mine, result="1")

        settles = [
            pool.submit(settle, others[0], jobs[::2]),
            pool.submit(settle, others[1], jobs[::-2]),
        ]
        for each in settles:
            each.result(20)
        bodies = take(cursor, 2 * chords)
        assert chords == len(bodies)
        write(ack, cursor, *bodies)

    assert {"succeeded": chords * rounds} == Counter(
        Workflow.objects.values_list("state", flat=True)
    )


@pytest.mark.parametrize("verb", ["redrive", "set_aside"])
def test_dead_letters_moved_in_several_statements_do_not_deadlock_with_settles(
    verb, cursor, new_cursor, pool, monkeypatch
):
    """In whatever order the workflows of these come."""
    monkeypatch.setattr(dead_letters, "ROWS_MAX", 1)
    chords, others = 20, (new_cursor(), new_cursor())
    for _ in range(3):
        for _ in range(chords):
            chord([give.s(1), give.s(2)], total.s()).delay()
        jobs = take(cursor, 2 * chords)
        write(dead_letter, cursor, *jobs[::2], reason="exhausted")
        barrier = threading.Barrier(2)

        def settle(other=others[0], mine=jobs[1::2], barrier=barrier):
            barrier.wait(20)
            write(ack, other, *mine, result="1")

        def move(other=others[1], mine=jobs[-2::-2], barrier=barrier):
            barrier.wait(20)
            ids = [job.id for job in mine]
            with other.connection.transaction():
                if verb == "redrive":
                    assert chords == len(redrive(other, ids))
                else:
                    set_aside(other, ids)

        for each in [pool.submit(settle), pool.submit(move)]:
            each.result(20)
        while left := take(cursor):
            write(ack, cursor, *left, result="1")

    ended = "succeeded" if verb == "redrive" else "cancelled"
    assert {ended: 3 * chords} == Counter(
        Workflow.objects.values_list("state", flat=True)
    )


def test_a_batch_that_is_stored_beside_the_last_settle_is_waited_for_or_refused(
    cursor, new_cursor, pool
):
    """The one around it cannot end between two looks of whoever stores one in it."""
    outer = batch()
    outer.add(give, 1)
    with outer:
        pass
    (job,) = take(cursor)
    other = new_cursor()

    with cursor.connection.transaction():
        write(ack, cursor, job, result="1")
        later = pool.submit(
            workflows.start,
            other,
            name="inner",
            key=None,
            steps=[],
            ends=[],
            is_list=True,
            kind="batch",
            parent=outer.result.id,
        )
        wait_until_blocked(new_cursor(), other)
    assert (None, "ended") == (later.result(20).workflow, later.result(20).refused)
    assert 1 == Workflow.objects.count()


def test_a_cancel_that_waits_for_a_settle_cancels_what_that_has_started(
    cursor, new_cursor, pool
):
    """The next step's job is no longer there."""
    workflow = chain(give.s(1), add.s(1), add.s(1)).delay().id
    (job,) = take(cursor)
    other = new_cursor()

    with cursor.connection.transaction():
        write(ack, cursor, job, result="1")
        later = pool.submit(call_off, other, workflow)
        wait_until_blocked(new_cursor(), other)
    assert 1 == len(later.result(20))

    assert ["succeeded", "cancelled", "cancelled"] == states()
    assert "cancelled" == Workflow.objects.get().state
    assert not Job.objects.exists()


def dead_and_running(cursor):
    """Return a chord's workflow, its dead member, and the one that runs."""
    workflow = chord([give.s(1), give.s(2)], total.s()).delay().id
    bad, good = take(cursor)
    write(dead_letter, cursor, bad, reason="exhausted")
    return workflow, bad, good


@pytest.mark.parametrize("first", ["redrive", "settle"])
def test_a_redrive_beside_the_last_settle_reopens_the_workflow(
    first, cursor, new_cursor, pool
):
    """Whoever comes second: the body starts when both have succeeded."""
    _, bad, good = dead_and_running(cursor)
    other = new_cursor()

    def settle(cursor):
        write(ack, cursor, good, result="2")

    def bring_back(cursor):
        assert [bad.id] == [job.id for job in redrive(cursor, [bad.id])]

    acts = [bring_back, settle] if first == "redrive" else [settle, bring_back]
    with cursor.connection.transaction():
        acts[0](cursor)
        later = pool.submit(acts[1], other)
        wait_until_blocked(new_cursor(), other)
    later.result(20)

    row = Workflow.objects.get()
    assert ("running", 1, 0, 1, None) == (
        row.state,
        row.active,
        row.dead,
        row.succeeded,
        row.finished_at,
    )
    write(ack, cursor, *take(cursor), result="1")
    assert [[1, 2]] == Job.objects.get().args


TAKES = ["reserve", "charge", "ship"]


def saga_at(cursor, step):
    """Start a saga and let it come to *step*; return its id and that job."""
    workflow = order.start(order_id=7, amount=5).id
    for _ in range(TAKES.index(step)):
        write(ack, cursor, *take(cursor), result='"done"')
    return workflow


def undone(cursor):
    """Let all compensations succeed; return them in their order."""
    return run_all(cursor)


def expected_of(done):
    """Return what undoes these steps, in its order."""
    undoes = {"reserve": "release", "charge": "refund"}
    return [undoes[step] for step in reversed(done) if step in undoes]


def check_compensated(workflow):
    row = Workflow.objects.get(id=workflow)
    assert ("compensated", 0) == (row.state, row.active)
    assert row.finished_at is not None
    assert not Job.objects.exists()
    assert not DeadLetter.objects.exists()


@pytest.mark.parametrize("first", ["settle", "cancel"])
@pytest.mark.parametrize("step", TAKES)
def test_a_saga_is_cancelled_beside_the_settle_of_a_step(
    step, first, cursor, new_cursor, pool
):
    """
    Between two steps, whoever comes second, what has succeeded is undone.

    After the last step there is nothing to cancel if that was settled first.
    """
    workflow = saga_at(cursor, step)
    (job,) = take(cursor)
    other = new_cursor()

    def settle(cursor):
        write(ack, cursor, job, result='"done"')

    def cancel(cursor):
        with cursor.connection.transaction():
            return call_off(cursor, workflow)

    with cursor.connection.transaction():
        if first == "settle":
            settle(cursor)
            later = pool.submit(cancel, other)
        else:
            assert [job.id] == workflows.cancel(cursor, workflow)
            later = pool.submit(settle, other)
        wait_until_blocked(new_cursor(), other)
    started = later.result(20)

    if step == "ship" and first == "settle":
        assert started is None
        row = Workflow.objects.get()
        assert ("succeeded", []) == (row.state, undone(cursor))
        return
    assert expected_of(TAKES[: TAKES.index(step) + 1]) == undone(cursor)
    check_compensated(workflow)


def start_with_key(cursor):
    """Store a chain with a key; return its id, and whether it is new."""
    plan, ends = chain(give.s(1), add.s(1)).planned()
    started = workflows.start(
        cursor,
        name="chain",
        key="once",
        steps=plan.steps,
        ends=ends.places,
        is_list=False,
        kind="canvas",
    )
    return started.workflow, started.is_new


@pytest.mark.parametrize("rolls_back", [False, True])
def test_of_two_starts_with_one_key_one_is_stored(rolls_back, cursor, new_cursor, pool):
    """The second waits; it is the one that is stored if the first rolls back."""
    other = new_cursor()

    with cursor.connection.transaction(force_rollback=rolls_back):
        first = start_with_key(cursor)
        later = pool.submit(start_with_key, other)
        wait_until_blocked(new_cursor(), other)
    second = later.result(20)

    row = Workflow.objects.get()
    assert (first[1], second) == (True, (row.id, rolls_back))
    assert 1 == Job.objects.count()


REPEATABLE = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
SEE = "SELECT count(*) FROM pgqueue_workflow"


def test_a_settle_in_repeatable_read_that_missed_another_is_refused(cursor, new_cursor):
    """It would not see that the other member has ended; again, it does."""
    chord([give.s(1), give.s(2)], total.s()).delay()
    first, second = take(cursor)
    other = new_cursor()

    def settle():
        with other.connection.transaction():
            other.execute(REPEATABLE)
            other.execute(SEE)
            write(ack, cursor, first, result="1")
            write(ack, other, second, result="2")

    with pytest.raises(psycopg.errors.SerializationFailure, match="could not serial"):
        settle()
    assert ["succeeded", "started", "waiting"] == states()
    write(ack, other, second, result="2")

    assert [[1, 2]] == Job.objects.get().args


def test_a_cancel_ends_a_batch_of_which_nothing_is_started():
    """No job of it will end, which would end the batch."""
    opened = batch("import")
    opened.start()

    assert opened.result.cancel()

    assert "cancelled" == opened.result.status
