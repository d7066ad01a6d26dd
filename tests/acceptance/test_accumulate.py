"""Accumulate: many calls, one run; by real workers."""

from __future__ import annotations

import os
import signal

import pytest
from django.db import connections

from django_pgqueue.models import ArchivedJob, DeadLetter
from django_pgqueue.tasks.result import JobResult
from tests.app import accumulate_tasks as tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import places, wait_until_final


def runs_of(the_ledger):
    """Return the ids of the calls of each run, in the order of the runs."""
    return [[call[0] for call in entry.note] for entry in the_ledger.entries("run")]


def call(task, count, **kwargs):
    """Store calls one by one, each in a transaction of its own; return their ids."""
    return [task.delay(**kwargs).id for _ in range(count)]


def executed(statement, params=()):
    with connections["default"].cursor() as cursor:
        cursor.execute(statement, params)


def undecodable(job):
    """Make the arguments of a job such that Python cannot read them."""
    executed("UPDATE pgqueue_job SET args = '[1e5000]' WHERE id = %s", [job])


def expected(state, ids, attempt=1, crashes=0):
    return {(state, attempt, crashes)}, set(ids)


def ends(final):
    """Return how jobs ended, each way once, and which jobs."""
    found = {(place.state, place.attempt, place.crashes) for place in final.values()}
    return found, set(final)


# When a run starts, and with what ----------------------------------------------------


def test_as_many_as_one_run_takes_start_at_once(start_worker, the_ledger):
    """They come in the order of their ids, and what is returned is stored for each."""
    start_worker()
    first = call(tasks.by_size, 9)
    ids = [*first, tasks.by_size.delay(7, name="ü").id]

    final = wait_until_final(ids)

    assert expected("succeeded", ids) == ends(final)
    (run,) = the_ledger.entries("run")
    assert [
        *([job, {}, 1] for job in first),
        [ids[-1], 7, {"name": "ü"}, 1],
    ] == run.note
    results = ArchivedJob.objects.filter(pk__in=ids).values_list("result", flat=True)
    assert [10] * 10 == list(results)
    assert {""} == set(ArchivedJob.objects.values_list("accumulate_key", flat=True))


def test_calls_of_an_async_task_run_together(start_worker, the_ledger):
    """In the event loop, also those that were claimed one by one."""
    waiting = call(tasks.by_size_async, 10)
    start_worker()
    wait_until_final(waiting)
    due = call(tasks.by_size_async, 8)
    executed("UPDATE pgqueue_job SET visible_at = enqueued_at")
    executed("SELECT pg_notify(pgqueue_channel(), 'async')")

    assert expected("succeeded", waiting + due) == ends(wait_until_final(waiting + due))
    assert [waiting, due] == runs_of(the_ledger)


# How they end ------------------------------------------------------------------------


def test_a_run_that_fails_is_tried_again_with_all_its_calls(start_worker, the_ledger):
    """At the end each is a dead letter of its own, with its own arguments."""
    start_worker(threads=2)

    ids = [tasks.fails.delay(n).id for n in range(10)]

    assert ({("exhausted", 3, 0)}, set(ids)) == ends(wait_until_final(ids))
    runs = the_ledger.entries("run")
    assert ids == [call[0] for call in runs[0].note]
    # A claim that is on its way when they are due may take some of them for another.
    assert len(runs) <= 10
    for attempt in (2, 3):
        tried = [c[0] for run in runs for c in run.note if c[3] == attempt]
        assert ids == sorted(tried)
    for n, letter in enumerate(DeadLetter.objects.order_by("pk")):
        assert [n] == letter.args
        assert [1, 2, 3] == [error["attempt"] for error in letter.errors]
        assert {"a run that always fails"} == {e["message"] for e in letter.errors}
        assert "in fails" in letter.errors[0]["traceback"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_that_is_cancelled_meanwhile_does_not_stop_the_run(
    start_worker, the_ledger, gate, fails
):
    """It has succeeded with the others; when they fail, it is cancelled."""
    worker = start_worker(threads=2)
    ids = call(tasks.through_gate, 10, gate=str(gate), fails=fails)
    wait_for(lambda: runs_of(the_ledger) == [ids], what="it runs")

    # The last one leads: it came when there were nine.
    cancelled = [ids[2], ids[9]]
    assert [True, True] == [JobResult(job).cancel() for job in cancelled]
    worker.wait_for_lines("asked to stop", 2)
    gate.touch()

    final = wait_until_final(ids)
    if not fails:
        assert expected("succeeded", ids) == ends(final)
        return
    # At once, and not when it is claimed again.
    assert {("cancelled", 1)} == {
        (final[job].state, final[job].deliveries) for job in cancelled
    }
    others = {job: final[job] for job in ids if job not in cancelled}
    assert ({("exhausted", 3, 0)}, set(others)) == ends(others)


# When processes die ------------------------------------------------------------------


def kill_child(worker):
    (child,) = worker.children()
    os.kill(child, signal.SIGKILL)


def test_a_killed_run_costs_each_of_its_calls_a_crash(start_worker, the_ledger, gate):
    """None is lost, none is in two places; each then runs alone, as after any crash."""
    ids = call(tasks.through_gate, 10, gate=str(gate))
    worker = start_worker(threads=1)
    wait_for(lambda: runs_of(the_ledger) == [ids], what="it runs")
    waiting = call(tasks.through_gate, 5, gate=str(gate))

    kill_child(worker)
    gate.touch()

    assert expected("succeeded", ids, crashes=1) == ends(wait_until_final(ids))
    assert sorted([[job] for job in ids]) == sorted(runs_of(the_ledger)[1:])
    assert {("live", 0, 0)} == {
        (rows[0].table, rows[0].attempt, rows[0].crashes)
        for job, rows in places().items()
        if job in waiting
    }
