"""A pool of processes: each thread of a worker has a runner, which runs its tasks."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from django_pgqueue.models import ArchivedJob, DeadLetter
from tests.app import control_tasks, crash_tasks, pool_tasks
from tests.app.models import Effect
from tests.harness.waiting import wait_for
from tests.harness.worker_process import (
    children_of,
    enqueue,
    is_alive,
    live_row,
    wait_until_final,
)

pytestmark = pytest.mark.smoke

EXIT_LEFT_BEHIND = 3


@pytest.fixture
def start_pool(start_worker):
    """As start_worker(), with runners."""

    def start_pool(*arguments, threads=2, **keywords):
        return start_worker("--pool=processes", *arguments, threads=threads, **keywords)

    return start_pool


def runners_of(worker):
    """Return the process ids of the living runners."""
    forkers = [pid for child in worker.children() for pid in children_of(child)]
    return [pid for forker in forkers for pid in children_of(forker)]


def pids(the_ledger, event="start"):
    return [entry.pid for entry in the_ledger.entries(event)]


# What a runner does ------------------------------------------------------------------


def test_a_job_runs_in_a_runner_of_its_thread(start_pool, the_ledger):
    """Its outcome and its result are stored as those of a thread are."""
    ids = enqueue(crash_tasks.record, 20, note={"a": [1, "ü"]})
    worker = start_pool()

    final = wait_until_final(ids)

    assert {("succeeded", 1)} == {(final[i].state, final[i].attempt) for i in ids}
    assert set(pids(the_ledger)) <= set(runners_of(worker))
    assert {"a": [1, "ü"]} == ArchivedJob.objects.get(pk=ids[0]).result
    assert {"MainThread"} == {e.thread for e in the_ledger.entries("start")}
    assert worker.lines(r"concurrency  1 x \(2 runners \+ 100 async slots\)")
    assert 0 == worker.stop()


def test_an_error_of_any_class_reaches_the_dead_letter_and_the_signals(
    start_pool, the_ledger
):
    """
    One that cannot be pickled, too: its class's name, its message and its traceback.
    job_started is sent in the runner, and the outcome's signal in the worker process.
    """
    (job,) = enqueue(pool_tasks.fails_with_its_own)
    start_pool()

    wait_until_final([job])
    wait_for(lambda: the_ledger.entries("signal dead"), what="its signal")

    (error,) = DeadLetter.objects.get(pk=job).errors
    name = "fails_with_its_own.<locals>.Unpicklable"
    assert (f"tests.app.pool_tasks.{name}", "1 is not 2") == (
        error["type"],
        error["message"],
    )
    lines = error["traceback"].splitlines()
    assert ("Traceback (most recent call last):", True) == (
        lines[0],
        "raise Unpicklable(1, 2)" in error["traceback"],
    )
    assert "django_pgqueue/tasks/" not in error["traceback"]
    (dead,) = the_ledger.entries("signal dead")
    assert ["tests.app.pool_tasks", name, "1 is not 2"] == dead.note
    (started,) = the_ledger.entries("signal started")
    assert pids(the_ledger) == [started.pid] != [dead.pid]


def test_a_running_job_hears_that_it_is_cancelled(start_pool, the_ledger):
    """And its Cancel makes it cancelled."""
    result = control_tasks.until_cancelled.delay(then="cancel")
    start_pool()
    wait_for(lambda: the_ledger.entries("start"), what="it runs")

    result.cancel()

    assert "cancelled" == wait_until_final([result.id])[result.id].state
    assert [result.id] == [entry.job for entry in the_ledger.entries("cancelled")]


def test_progress_and_the_lease_reach_the_row(start_pool, the_ledger, gate):
    """The first report is stored while the job runs, the last one with its ack."""
    (job,) = enqueue(control_tasks.reports, steps=500, gate=str(gate))
    (longer,) = enqueue(control_tasks.extends, duration="1h", gate=str(gate))
    start_pool(pgqueue={"LEASE_SECONDS": 60})

    wait_for(lambda: (live_row(job, "progress") or [None])[0], what="a report")
    wait_for(lambda: the_ledger.entries("extended"), what="an extension")
    (seconds,) = live_row(longer, "extract(epoch FROM visible_at - now())::int")
    gate.touch()
    final = wait_until_final([job, longer])

    assert 3_500 < seconds <= 3_600
    assert {"succeeded"} == {row.state for row in final.values()}
    assert {"done": 500, "total": 500} == ArchivedJob.objects.get(pk=job).progress


@pytest.mark.parametrize(
    "word,place",
    [("ack", "succeeded"), ("reject", "rejected"), ("retry", "live")],
)
def test_a_word_is_committed_when_it_is_said(start_pool, the_ledger, gate, word, place):
    """And a second one is refused."""
    words = [word, "ack"]
    (job,) = enqueue(control_tasks.speaks, words=words, gate=str(gate))
    start_pool()

    wait_for(lambda: the_ledger.entries("refused"), what="the second word")

    if place == "live":
        assert live_row(job, "leased_by IS NULL AND visible_at > now()") == (True,)
    else:
        assert place == wait_until_final([job])[job].state
    assert "WrongState" == the_ledger.entries("refused")[0].note[0]
    gate.touch()


def test_an_atomic_task_and_its_ack_are_one_transaction(start_pool, the_ledger):
    """Written by the runner; one that fails leaves nothing."""
    good = enqueue(control_tasks.atomic_effect, 10)
    (bad,) = enqueue(control_tasks.atomic_does, what="fail")
    (hooks,) = enqueue(control_tasks.atomic_does, what="hooks")
    start_pool()

    final = wait_until_final([*good, bad, hooks])

    assert {"succeeded"} == {final[job].state for job in [*good, hooks]}
    assert "exhausted" == final[bad].state
    assert sorted([*good, hooks]) == sorted(
        Effect.objects.values_list("job", flat=True)
    )
    # Hooks run after the commit that makes the job final.
    wait_for(lambda: 2 == len(the_ledger.entries("hook")), what="the hooks have run")


# Time ------------------------------------------------------------------------------


def test_a_timeout_reaches_a_task_that_sleeps(start_pool, the_ledger):
    """Other than in a thread: what the system waits for is interrupted."""
    ids = [*enqueue(pool_tasks.sleeps), *enqueue(crash_tasks.stuck)]
    worker = start_pool()
    before = wait_for(lambda: len(runners_of(worker)) == 2 and runners_of(worker))

    final = wait_until_final(ids)

    assert {"timeout"} == {final[job].state for job in ids}
    assert before == runners_of(worker)


@pytest.mark.slow
def test_a_hard_timeout_kills_one_runner_and_no_neighbour(start_pool, the_ledger, gate):
    """The process goes on, and so does the job beside it; the thread gets another."""
    (deaf,) = enqueue(pool_tasks.stubborn)
    (beside,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    worker = start_pool()

    final = wait_until_final([deaf], 40)
    gate.touch()
    final |= wait_until_final([beside, *enqueue(crash_tasks.record, 10)])

    assert ("dead", "timeout", 0) == (
        final[deaf].table,
        final[deaf].state,
        final[deaf].crashes,
    )
    assert ("succeeded", 1) == (final[beside].state, final[beside].deliveries)
    (error,) = DeadLetter.objects.get(pk=deaf).errors
    assert re.search(r"timeout of 0.3 s\. .* process \d+ was killed", error["message"])
    assert 1 == len(worker.names())
    assert ["TaskTimeout"] == [e.note for e in the_ledger.entries("deaf")]
    assert {} == the_ledger.repeated()


# Deaths ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how,cause",
    [
        ("exit", "exit status 7"),
        ("clean", "exit status 0"),
        ("kill", "signal 9"),
        ("segfault", "signal 11"),
    ],
)
def test_a_job_that_kills_its_runner_costs_nobody_else_anything(
    start_pool, the_ledger, gate, how, cause
):
    """Each death is a crash of this job alone; at CRASHES_MAX it is a dead letter."""
    beside = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    (bad,) = enqueue(crash_tasks.poison, how=how)
    worker = start_pool()

    final = wait_until_final([bad])
    gate.touch()
    final |= wait_until_final([*beside, *enqueue(crash_tasks.record, 10)])

    assert ("dead", "worker_lost", 3) == (
        final.pop(bad).table,
        DeadLetter.objects.get(pk=bad).reason,
        DeadLetter.objects.get(pk=bad).crashes,
    )
    assert {("succeeded", 0, 1)} == {
        (row.state, row.crashes, row.deliveries) for row in final.values()
    }
    errors = DeadLetter.objects.get(pk=bad).errors
    assert ["worker_lost"] * 3 == [entry["kind"] for entry in errors]
    assert all(f"ended with {cause} while" in entry["message"] for entry in errors)
    assert {bad: 2} == the_ledger.repeated()
    # The worker process itself lives on; a suspect has one of its own meanwhile.
    assert 1 == len([name for name in worker.names() if ".alone-" not in name])


def test_a_runner_that_dies_after_the_ack_costs_its_job_nothing(start_pool, the_ledger):
    """It is done, and stays so."""
    (job,) = enqueue(pool_tasks.acks_and_dies)
    worker = start_pool()

    worker.wait_for_lines(r"died       runner .*exit status 3")
    final = wait_until_final([job, *enqueue(crash_tasks.record, 4)])

    assert ("succeeded", 0, 1) == (
        final[job].state,
        final[job].crashes,
        final[job].deliveries,
    )
    assert 0 == worker.stop()


def test_a_runner_that_is_killed_while_it_waits_costs_no_job_a_crash(
    start_pool, the_ledger
):
    """
    The next job gets a new one. One for each thread: what waits behind them may be
    handed back while the new ones start.
    """
    worker = start_pool()
    wait_until_final(enqueue(crash_tasks.record, 10))
    before = runners_of(worker)

    for pid in before:
        os.kill(pid, signal.SIGKILL)
    final = wait_until_final(ids := enqueue(crash_tasks.record, len(before)))

    assert {("succeeded", 0, 1)} == {
        (final[job].state, final[job].crashes, final[job].deliveries) for job in ids
    }
    assert not set(before) & set(pids(the_ledger)[10:])


def test_runners_die_with_their_worker_process(start_pool, the_ledger, gate):
    """
    Its job is a crash, and starts again when no runner of the dead one is left: two
    never work on it at once.
    """
    (job,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    worker = start_pool()
    wait_for(lambda: the_ledger.entries("start"), what="it runs")
    runners, (process,) = runners_of(worker), worker.children()

    os.kill(process, signal.SIGKILL)
    wait_for(lambda: len(the_ledger.entries("start")) == 2, what="it runs again")
    alive = [pid for pid in runners if is_alive(pid)]
    gate.touch()

    assert [] == alive
    assert ("succeeded", 1) == (
        (final := wait_until_final([job])[job]).state,
        final.crashes,
    )


def test_a_lost_forker_replaces_the_process(start_pool, the_ledger):
    """Nothing is lost: what ran is a crash, and runs in the next process."""
    (bad,) = enqueue(pool_tasks.kills_its_parent)
    worker = start_pool()

    worker.wait_for_lines(r"started    worker=", 2)
    final = wait_until_final([bad, *enqueue(crash_tasks.record, 10)])

    assert {"succeeded"} == {row.state for row in final.values()}
    assert 1 == final[bad].crashes
    assert worker.lines("died       forker")


# Stops -----------------------------------------------------------------------------


def test_term_to_the_whole_group_lets_running_jobs_finish(start_pool, the_ledger, gate):
    """A runner leaves it to the supervisor to say what a signal means."""
    ids = enqueue(crash_tasks.record_through_gate, 2, gate=str(gate))
    worker = start_pool()
    wait_for(lambda: len(the_ledger.entries("start")) == 2, what="both run")

    worker.signal_group(signal.SIGTERM)
    worker.wait_for_lines("stopping ")
    gate.touch()

    assert 0 == worker.wait()
    assert {"succeeded"} == {row.state for row in wait_until_final(ids).values()}


def test_a_job_that_outlives_the_grace_is_ended_and_handed_back(
    start_pool, the_ledger, gate
):
    """Its runner is killed, so that it cannot work on while the job runs elsewhere."""
    ids = enqueue(crash_tasks.record_through_gate, 2, gate=str(gate))
    worker = start_pool("--grace=0.2")
    wait_for(lambda: len(the_ledger.entries("start")) == 2, what="both run")

    assert EXIT_LEFT_BEHIND == worker.stop()

    assert {(None, 0, 0)} == {
        live_row(job, "leased_by", "attempt", "crashes") for job in ids
    }
    assert 2 == len(worker.lines("interrupted job="))
    assert 0 == len(worker.lines("crashed "))
    assert not any(map(is_alive, pids(the_ledger)))


# Recycling -------------------------------------------------------------------------


def test_a_runner_is_replaced_after_so_many_jobs(start_pool, the_ledger):
    """Each runs five, and the worker process stays."""
    ids = enqueue(crash_tasks.record, 20)
    worker = start_pool("--recycle-jobs=5", threads=1)

    wait_until_final(ids)

    ran = pids(the_ledger)
    assert [5] * 4 == [ran.count(pid) for pid in dict.fromkeys(ran)]
    assert 3 <= len(worker.lines("recycled   runner .* after 5 jobs"))
    assert 1 == len(worker.names())


def test_a_runner_is_replaced_when_it_takes_too_much_memory(start_pool, the_ledger):
    """Looked at after each job: the one that goes beyond it is the last."""
    ids = enqueue(pool_tasks.leaks, 6, mebibytes=100)
    worker = start_pool("--recycle-memory=220MiB", threads=1)

    wait_until_final(ids)

    ran = pids(the_ledger)
    assert [2] * 3 == [ran.count(pid) for pid in dict.fromkeys(ran)]
    assert worker.lines(r"recycled   runner .* after \d+ MiB of memory")


def test_a_runner_is_replaced_when_it_is_old(start_pool, the_ledger, gate):
    """A job that runs then is not disturbed."""
    (first,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
    worker = start_pool("--recycle-age=1s", threads=1)
    wait_for(lambda: the_ledger.entries("start"), what="it runs")
    (runner,) = runners_of(worker)
    started = wait_for(lambda: the_ledger.entries("start"))[0].at
    wait_for(lambda: time.monotonic() - started > 1.2, what="it is old")

    gate.touch()
    final = wait_until_final([first, *enqueue(crash_tasks.record, 2)])

    assert {("succeeded", 1)} == {(r.state, r.deliveries) for r in final.values()}
    ran = pids(the_ledger)
    assert [runner] == [pid for pid in ran if pid == runner]


def test_fifty_replacements_leave_nothing_behind(start_pool, the_ledger):
    """No descriptor and no zombie, in the worker process or in its forker."""
    worker = start_pool("--recycle-jobs=1", threads=1)
    wait_until_final(enqueue(crash_tasks.record, 10))
    (process,) = worker.children()
    (forker,) = children_of(process)
    before = [descriptors(process), descriptors(forker)]

    wait_until_final(enqueue(crash_tasks.record, 50))

    assert 60 == len(set(pids(the_ledger)))
    wait_for(
        lambda: [descriptors(process), descriptors(forker)] <= before,
        what=f"as few descriptors as before: {before}",
    )
    text = Path(f"/proc/{forker}/task/{forker}/children").read_text()
    assert 1 >= len(text.split())


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
