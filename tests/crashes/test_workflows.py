"""Kills and cuts while workflows advance: each step starts once, each workflow ends."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections import Counter
from contextlib import suppress

import pytest

from django_pgqueue import chain, chord
from django_pgqueue.models import ArchivedJob, Job, Step, Workflow
from tests.app import crash_tasks
from tests.app.workflow_tasks import passes, total
from tests.harness.proxy import Proxy
from tests.harness.waiting import wait_for
from tests.harness.worker_process import wait_until_final

MODULES = {"TASK_MODULES": ["crash_tasks", "workflow_tasks"]}
# The poison limit is not what is tested here.
PATIENT = {**MODULES, "CRASHES_MAX": 100, "DELIVERIES_MAX": 1_000}
SHORT = {**PATIENT, "LEASE_SECONDS": 2, "POLL_INTERVAL_SECONDS": 0.5}

MEMBERS = 20


@pytest.mark.parametrize(
    "point,repeats",
    [("claimed", 0), ("running", 2), ("ack.before", 2), ("ack.after", 0)],
)
def test_a_member_whose_worker_dies_is_rescued_and_counted_once(
    start_worker, the_ledger, failpoint, point, repeats
):
    """The body starts in the commit that ends the last member, or not yet."""
    killing = failpoint(point, times=2)
    header = [crash_tasks.record.s(number) for number in range(MEMBERS)]
    result = chord(header, total.s()).delay()

    start_worker(threads=1, failpoint=killing, pgqueue=PATIENT)

    assert sum(range(MEMBERS)) == result.get(timeout=60)
    assert 2 == len(killing.hits())
    row = Workflow.objects.get()
    assert ("succeeded", 0, MEMBERS + 1) == (row.state, row.active, row.succeeded)
    assert repeats == sum(the_ledger.repeated().values())


def test_a_settle_whose_answer_is_lost_advances_once(start_worker, the_ledger):
    """The step after it was stored with it, and is not stored again."""
    with Proxy() as proxy:
        worker = start_worker(
            "--queues=default",
            databases={"default": proxy.database},
            pgqueue=MODULES,
        )
        # The settler's connection is opened by its first write.
        wait_until_final([crash_tasks.record.delay().id])
        assert 1 == proxy.cut_at(b"pgqueue settler", b"INTO pgqueue_archived_job")

        result = chain(passes.s(1), passes.s(), passes.s()).delay()

        assert proxy.cut_done.wait(20)
        assert 4 == result.get(timeout=60)
        worker.wait_for_lines("recovered  loop=settler")
        row = Workflow.objects.get()
        assert ("succeeded", 3, 3) == (row.state, row.steps, row.succeeded)
        assert {} == the_ledger.repeated()
        assert [] == the_ledger.entries("stale")
        assert 0 == worker.stop()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_chains_end_once_whoever_is_killed(start_worker, the_ledger):
    """
    200 chains of four steps; processes die at random, and once a whole worker does,
    which another one replaces.
    """
    seed = int.from_bytes(os.urandom(4))
    draw = random.Random(seed)
    chains, kills = 200, 20
    workers = [start_worker(processes=2, pgqueue=SHORT) for _ in range(2)]
    canvases = [
        chain(passes.s(4 * n), passes.s(), passes.s(), passes.s())
        for n in range(chains)
    ]
    results = [canvas.delay(key=str(n)) for n, canvas in enumerate(canvases)]

    def done() -> int:
        return ArchivedJob.objects.count()

    for kill in range(1, kills + 1):
        share = kill * chains * 3 // kills
        wait_for(lambda at=share: done() >= at, 60, f"{share} steps are done")
        if kill == kills // 2:
            workers.pop(0).signal_group(signal.SIGKILL)
            workers.append(start_worker(processes=2, pgqueue=SHORT, wait=False))
            continue
        victims = wait_for(
            lambda: [pid for each in workers for pid in each.children()], what="a child"
        )
        # A process for what ran when another one died leaves by itself.
        with suppress(ProcessLookupError):
            os.kill(draw.choice(victims), signal.SIGKILL)

    wait_for(
        lambda: not Workflow.objects.filter(state="running").exists(), 60, f"{seed=}"
    )
    assert [4 * n + 4 for n in range(chains)] == [
        each.get(timeout=0) for each in results
    ]
    counts = Workflow.objects.values_list("state", "active", "steps", "succeeded")
    assert {("succeeded", 0, 4, 4)} == set(counts), seed
    assert {"succeeded": 4 * chains} == Counter(
        Step.objects.values_list("state", flat=True)
    )
    assert not Job.objects.exists()
    archived = Counter(ArchivedJob.objects.values_list("id", flat=True))
    assert set(Step.objects.values_list("id", flat=True)) == set(archived)
    assert {1} == set(archived.values())
    _assert_order(the_ledger, results, seed)


def _assert_order(the_ledger, results, seed) -> None:
    """No step has started before the one before it has ended."""
    first_start: dict[int, float] = {}
    first_end: dict[int, float] = {}
    for entry in the_ledger.entries():
        if entry.event in ("start", "end"):
            first = first_start if entry.event == "start" else first_end
            first.setdefault(entry.job, entry.at)
    for result in results:
        ids = [step.id for step in result.steps()]
        for before, after in itertools.pairwise(ids):
            assert first_end[before] <= first_start[after], seed
