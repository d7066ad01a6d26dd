"""Jobs whose process died run alone, in a process beside those that go on."""

from __future__ import annotations

import os
import signal

from django_pgqueue.models import Job
from django_pgqueue.queues.suspects import CROWD_MAX
from tests.app import async_tasks, crash_tasks
from tests.harness.waiting import wait_for
from tests.harness.worker_process import enqueue, wait_until_final

MODULES = {"TASK_MODULES": ["tasks", "crash_tasks", "async_tasks"]}

# Coroutines that a crash meets.
CROWD = int(os.environ.get("PGQUEUE_SUSPECTS_CROWD", "120"))


def test_what_is_unrelated_goes_on_while_suspects_wait(
    start_worker, the_ledger, tmp_path
):
    """Those that a crash met wait for one another, and nobody else waits for them."""
    release, fatal = tmp_path / "release", tmp_path / "fatal"
    beside = enqueue(crash_tasks.record_through_gate, 3, gate=str(release))
    (bad,) = enqueue(crash_tasks.poison, how="exit", gate=str(fatal))
    worker = start_worker(processes=2, threads=8)
    wait_for(lambda: len(the_ledger.entries("start")) == 4, what="all four run")
    fatal.touch()
    # One of them holds the place in which they run, until it is let go.
    worker.wait_for_lines("alone      jobs=1 ")
    wait_for(lambda: len(the_ledger.entries("start")) > 4, what="a suspect runs")

    others = enqueue(crash_tasks.record, 20)
    final = wait_until_final(others)

    assert {"succeeded"} == {final[job].state for job in others}
    assert Job.objects.filter(pk__in=beside).exists()
    release.touch()
    final = wait_until_final([bad, *beside])
    assert ("dead", "worker_lost", 3) == (
        final[bad].table,
        final[bad].state,
        final[bad].crashes,
    )
    starts = the_ledger.starts()
    assert 3 == starts[bad]
    assert {1} == {final[job].crashes for job in beside}
    assert max(starts[job] for job in beside) == 2


def test_a_crash_that_met_hundreds_is_narrowed_down_by_halves(
    start_worker, the_ledger, tmp_path
):
    """
    Those of a half that lived through it are no suspects; the other one is halved.

    A half's death is counted for nobody, so that no innocent job comes near the limit.
    """
    gate, fatal = tmp_path / "gate", tmp_path / "fatal"
    beside = enqueue(async_tasks.agated, CROWD, gate=str(gate))
    (bad,) = enqueue(async_tasks.apoison, gate=str(fatal))
    worker = start_worker(f"--async-slots={CROWD + 1}", threads=2, pgqueue=MODULES)
    everybody = CROWD + 1
    wait_for(lambda: len(the_ledger.entries("start")) == everybody, what="all run")
    gate.touch()
    fatal.touch()
    final = wait_until_final([bad, *beside], 60)

    halvings, crowd = 0, everybody
    while crowd > CROWD_MAX:
        halvings, crowd = halvings + 1, (crowd + 1) // 2
    starts = the_ledger.starts()
    assert ("dead", "worker_lost", 3) == (
        final[bad].table,
        final[bad].state,
        final[bad].crashes,
    )
    assert 3 <= starts[bad] <= 3 + halvings
    assert {"succeeded"} == {final[job].state for job in beside}
    assert max(final[job].crashes for job in beside) <= 1
    assert max(starts[job] for job in beside) <= 2 + halvings
    assert len(worker.lines("died       worker=")) <= 3 + halvings


def test_where_many_wait_there_are_as_many_places_as_processes(
    start_worker, the_ledger, gate
):
    """Each has a process where nothing else runs; the third waits for one of them."""
    jobs = enqueue(crash_tasks.record_through_gate, 3, gate=str(gate))
    Job.objects.filter(pk__in=jobs).update(runs_alone=True, crashes=1)
    worker = start_worker(processes=2, threads=4)

    wait_for(lambda: len(the_ledger.entries("start")) == 2, what="two of them run")
    assert 2 == len({entry.pid for entry in the_ledger.entries("start")})
    assert 4 == len(worker.children())
    assert 1 == Job.objects.filter(pk__in=jobs, leased_by=None).count()
    gate.touch()

    assert {"succeeded"} == {place.state for place in wait_until_final(jobs).values()}


def test_suspects_of_a_worker_that_is_gone_are_taken_by_another(
    start_worker, the_ledger
):
    """Nobody has told it: it looks for them now and then."""
    start_worker(threads=2)
    (left,) = Job.objects.bulk_create(
        [Job(task=crash_tasks.record.name, runs_alone=True, crashes=1)]
    )

    final = wait_until_final([left.pk])

    assert ("succeeded", 1) == (final[left.pk].state, final[left.pk].crashes)


def test_a_stop_gives_a_suspect_back_without_a_crash(
    start_worker, the_ledger, tmp_path
):
    """The process in which it runs stops as every other."""
    release, fatal = tmp_path / "release", tmp_path / "fatal"
    (job,) = enqueue(crash_tasks.record_through_gate, gate=str(release))
    (bad,) = enqueue(crash_tasks.poison, how="exit", gate=str(fatal))
    Job.objects.filter(pk=job).update(runs_alone=True, crashes=1)
    worker = start_worker("--grace=1", threads=2)
    wait_for(lambda: len(the_ledger.entries("start")) == 2, what="both run")

    worker.signal(signal.SIGTERM)
    worker.wait()

    rows = {row.pk: row for row in Job.objects.all()}
    assert (None, 1, True) == (
        rows[job].leased_by,
        rows[job].crashes,
        rows[job].runs_alone,
    )
    assert (None, 0, False) == (
        rows[bad].leased_by,
        rows[bad].crashes,
        rows[bad].runs_alone,
    )
