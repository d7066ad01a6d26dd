"""Async tasks in real workers: side by side on one event loop, in bounds, recovered."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from django.db import connection

from django_pgqueue.models import ArchivedJob, DeadLetter
from django_pgqueue.tasks import operate
from tests.app import async_tasks, crash_tasks
from tests.app.models import Order
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, live_row, wait_until_final

pytestmark = pytest.mark.smoke

EXIT_CLEAN, EXIT_LEFT_BEHIND = 0, 3

MODULES = {"TASK_MODULES": ["tasks", "crash_tasks", "async_tasks"]}


@pytest.fixture
def start(start_worker):
    """A worker that knows the async tasks, too."""

    def start(*arguments, slots=50, pgqueue=None, **options):
        return start_worker(
            f"--async-slots={slots}",
            *arguments,
            pgqueue={**MODULES, **(pgqueue or {})},
            **options,
        )

    return start


def ends(final):
    return {job: (place.table, place.state) for job, place in final.items()}


def started(the_ledger):
    return {entry.job for entry in the_ledger.entries("start")}


def wait_for_starts(the_ledger, count):
    wait_for(
        lambda: len(the_ledger.entries("start")) >= count, what=f"{count} jobs started"
    )


# Side by side ------------------------------------------------------------------------


def test_as_many_jobs_run_at_once_as_there_are_slots(start, the_ledger, gate):
    """All of them are under way before the first one ends, with two threads."""
    ids = enqueue(async_tasks.agated, 200, gate=str(gate))

    worker = start(slots=200, threads=2)
    wait_for_starts(the_ledger, 200)
    assert [] == the_ledger.entries("end")
    gate.touch()
    final = wait_until_final(ids)

    assert {("archive", "succeeded")} == set(ends(final).values())
    assert {} == the_ledger.repeated()
    assert worker.lines(r"concurrency +1 x \(2 threads \+ 200 async slots\)")
    assert 1 == len(worker.names())


def test_async_jobs_run_while_every_thread_is_busy(start, the_ledger, gate):
    """Their queue has shown nothing else, so it is looked at for coroutines alone."""
    start(threads=1)
    wait_until_final(enqueue(async_tasks.arecord))
    busy = enqueue(crash_tasks.record_through_gate, 2, gate=str(gate))
    wait_for(lambda: started(the_ledger) & set(busy), what="the thread is busy")

    final = wait_until_final(enqueue(async_tasks.arecord, 60))

    assert {("archive", "succeeded")} == set(ends(final).values())
    assert 1 == len(started(the_ledger) & set(busy))
    gate.touch()
    wait_until_final(busy)


def test_context_variables_are_fresh_in_every_job(start, the_ledger):
    """What one sets is seen in its own sync calls and by no other job."""
    ids = enqueue(async_tasks.acolours, 20, name="red")

    start(slots=4)
    wait_until_final(ids)

    assert {'["none", "red"]'} == {row_text(job, "result") for job in ids}


def row_text(job, column):
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {column}::text FROM pgqueue_archived_job WHERE id = %s", [job]
        )
        return cursor.fetchone()[0]


def progress(job):
    return ArchivedJob.objects.values_list("progress", flat=True).get(pk=job)


# Failures ----------------------------------------------------------------------------


def test_no_exception_of_a_task_ends_the_event_loop(start, the_ledger, gate):
    """SystemExit and KeyboardInterrupt neither; the jobs beside it go on."""
    worker = start()
    beside = enqueue(async_tasks.agated, 3, gate=str(gate))
    wait_for_starts(the_ledger, 3)
    names = ("exit", "interrupt", "cancelled")
    raised = {
        async_tasks.araises.delay(name=name, where=where).id: where
        for name in names
        for where in ("here", "task", "callback")
    }

    final = wait_until_final([*raised])
    gate.touch()
    final |= wait_until_final(beside)

    good, bad = ("archive", "succeeded"), ("dead", "exhausted")
    # What a callback raises is nobody's failure but its own.
    expected = {job: good if at == "callback" else bad for job, at in raised.items()}
    assert {**expected, **dict.fromkeys(beside, good)} == ends(final)
    assert {1} == set(the_ledger.starts().values())
    assert 1 == len(worker.names())


def test_what_a_task_leaves_running_is_cancelled_and_told(start, the_ledger):
    """Before its job is settled, so that nothing runs beside its next attempt."""
    (job,) = enqueue(async_tasks.aleaves_tasks)

    worker = start()
    final = wait_until_final([job])

    assert {job: ("archive", "succeeded")} == ends(final)
    assert 2 == len(the_ledger.entries("raised"))
    assert worker.lines(rf"left +job={job} .*2 asyncio tasks .*linger")


# Time --------------------------------------------------------------------------------


def test_a_task_that_runs_too_long_is_cancelled(start, the_ledger, gate):
    """It sees CancelledError; the job sees TaskTimeout; its neighbours see nothing."""
    worker = start()
    beside = enqueue(async_tasks.agated, gate=str(gate))
    wait_for_starts(the_ledger, 1)

    (slow,) = enqueue(async_tasks.atoo_slow)
    final = wait_until_final([slow])
    gate.touch()
    final |= wait_until_final(beside)

    assert {slow: ("dead", "timeout"), beside[0]: ("archive", "succeeded")} == ends(
        final
    )
    (error,) = DeadLetter.objects.get(pk=slow).errors
    assert error["type"].endswith("TaskTimeout")
    assert "timeout of 0.3 s" in error["message"]
    assert "in atoo_slow" in error["traceback"]
    assert 0.3 <= error["ran_seconds"]
    assert ["CancelledError"] == [e.note for e in the_ledger.entries("raised")]
    assert 1 == len(worker.names())


@pytest.mark.slow
def test_a_task_that_swallows_its_timeout_costs_its_process(start, the_ledger, gate):
    """It is settled, the process is replaced, and its neighbours run again."""
    modules = {"TASK_MODULES": [*MODULES["TASK_MODULES"], "short_hard_grace"]}
    worker = start("--grace=0.2", pgqueue=modules)
    beside = enqueue(async_tasks.agated, 2, gate=str(gate))
    wait_for_starts(the_ledger, 2)

    (stubborn,) = enqueue(async_tasks.atoo_slow, swallows=True)
    final = wait_until_final([stubborn], 40)
    worker.wait_for_lines("recycled ")
    worker.wait_for_lines("started  ", 2)
    gate.touch()
    final |= wait_until_final(beside)

    assert ("dead", "timeout") == ends(final)[stubborn]
    assert {("succeeded", 0, 1)} == {
        (final[job].state, final[job].crashes, final[job].attempt) for job in beside
    }
    (error,) = DeadLetter.objects.get(pk=stubborn).errors
    assert "its process was replaced" in error["message"]


def test_cancel_interrupts_a_running_task(start, the_ledger, gate):
    """CancelledError where it waits; it tidies up; the job ends as cancelled."""
    start()
    (job,) = enqueue(async_tasks.acleans_up, gate=str(gate), seconds=0.1)
    wait_for_starts(the_ledger, 1)

    answer = operate.cancel([job], by="a test")
    final = wait_until_final([job])

    assert [job] == answer.requested
    assert {job: ("archive", "cancelled")} == ends(final)
    assert [True] == [entry.note for entry in the_ledger.entries("raised")]
    assert [job] == [entry.job for entry in the_ledger.entries("cleaned")]


# The database ------------------------------------------------------------------------


def test_any_number_of_coroutines_share_as_many_connections_as_there_are_threads(
    start, the_ledger, gate
):
    """Each of 150 jobs writes and reads through the ORM, on two connections."""
    told = [{"name": f"n{n}", "gate": str(gate)} for n in range(150)]
    ids = [result.id for result in async_tasks.awrites.bulk(told)]

    start(slots=150, threads=2)
    # A thread that is without a job for a moment would close its connection.
    wait_for(lambda: Order.objects.count() == 150, what="all of them have written")
    gate.touch()
    final = wait_until_final(ids)

    assert {("archive", "succeeded")} == set(ends(final).values())
    assert {f"n{n}" for n in range(150)} == set(
        Order.objects.values_list("name", flat=True)
    )
    backends = Counter(entry.note for entry in the_ledger.entries("backend"))
    assert 150 == backends.total()
    assert 2 == len(backends)


def test_a_transaction_left_open_by_a_sync_call_reaches_nobody(start, the_ledger):
    """It is rolled back and the call raises; jobs on the same connection commit."""
    beside, bad = [], []
    for how in ("atomic", "autocommit", "begin"):
        beside += enqueue(async_tasks.awrites, 20, name="kept")
        bad += enqueue(async_tasks.aleaves_transaction, 3, how=how)
    beside += enqueue(async_tasks.awrites, 20, name="kept")

    start(slots=100, threads=1)
    final = wait_until_final([*bad, *beside])

    assert {"exhausted"} == {final[job].state for job in bad}
    assert {"succeeded"} == {final[job].state for job in beside}
    assert {"kept": 80} == Counter(Order.objects.values_list("name", flat=True))
    assert [] == the_ledger.entries("went on")
    for letter in DeadLetter.objects.all():
        (error,) = letter.errors
        assert error["type"].endswith("TransactionManagementError")
        assert "Put the whole transaction into one function" in error["message"]


# Ack policies ------------------------------------------------------------------------


# Crashes and stops -------------------------------------------------------------------


def test_jobs_of_a_killed_process_run_again_at_once(start, the_ledger, gate):
    """Each that ran has crashed once; what was not started is untouched."""
    worker = start(slots=6, threads=2)
    ids = enqueue(async_tasks.agated, 9, gate=str(gate))
    sync = enqueue(crash_tasks.record_through_gate, 1, gate=str(gate))
    wait_for_starts(the_ledger, 7)
    ran = started(the_ledger)

    (child,) = worker.children()
    gate.touch()
    os.kill(child, signal.SIGSTOP)
    before = {entry.job for entry in the_ledger.entries("end")}
    os.kill(child, signal.SIGKILL)
    worker.wait_for_lines("rescued ")
    final = wait_until_final([*ids, *sync])

    assert {"succeeded"} == {place.state for place in final.values()}
    again = {job for job, count in the_ledger.starts().items() if count == 2}
    assert again <= ran
    assert ran - before <= again
    assert {1} == {final[job].crashes for job in again}
    assert {0} == {final[job].crashes for job in final.keys() - again}


def test_a_coroutine_that_outlives_the_grace_tidies_up_and_is_handed_back(
    start, the_ledger, gate
):
    """CancelledError reaches it; it has failed nothing, and its attempt is back."""
    worker = start("--grace=0.2")
    ids = enqueue(async_tasks.acleans_up, 3, gate=str(gate), seconds=0.05)
    wait_for_starts(the_ledger, 3)

    assert EXIT_LEFT_BEHIND == worker.stop()

    assert set(ids) == {entry.job for entry in the_ledger.entries("cleaned")}
    for job in ids:
        assert worker.lines(rf"interrupted job={job} ")
        row = live_row(job, "leased_by", "attempt", "crashes", "visible_at <= now()")
        assert (None, 0, 0, True) == row
    gate.touch()
    start()
    final = wait_until_final(ids)
    assert {("succeeded", 1, 0)} == {
        (place.state, place.attempt, place.crashes) for place in final.values()
    }
