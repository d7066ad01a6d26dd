"""Workflows by real workers: steps start where those before them end, once."""

from __future__ import annotations

from collections import Counter

import pytest

from django_pgqueue import WorkflowFailed, chain, chord, group
from django_pgqueue.models import ArchivedJob, Job, Workflow
from tests.app import control_tasks, crash_tasks
from tests.app.workflow_tasks import give, passes
from tests.harness.waiting import wait_for

MODULES = {
    "TASK_MODULES": ["crash_tasks", "control_tasks", "lane_tasks", "workflow_tasks"]
}

TIMEOUT = 60


def ended(result, state="succeeded"):
    """Return the workflow's row, once it has ended in this state."""
    wait_for(lambda: result.refresh().status != "running", TIMEOUT, "it has ended")
    assert state == result.status
    row = Workflow.objects.get(id=result.id)
    assert 0 == row.active
    return row


def states(result):
    return Counter(step.state for step in result.steps())


def test_the_body_of_a_chord_runs_once_with_all_results(start_worker, the_ledger):
    """Whoever ends last: members end side by side in threads of several processes."""
    members = 100
    for _ in range(2):
        start_worker(threads=4, pgqueue=MODULES, wait=False)
    header = [passes.s(number) for number in range(members)]

    result = chord(header, crash_tasks.record.s()).delay()

    assert [number + 1 for number in range(members)] == result.get(timeout=TIMEOUT)
    row = ended(result)
    assert (members + 1, members + 1) == (row.steps, row.succeeded)
    assert {} == the_ledger.repeated()
    assert members + 1 == ArchivedJob.objects.filter(workflow_id=result.id).count()


def test_steps_of_many_chains_start_at_once(start_worker, the_ledger):
    """Each on its own: the poll is ten minutes away, so a wake is heard for each."""
    start_worker(processes=2, pgqueue=MODULES)

    results = [
        chain(give.s(number), passes.s(), passes.s(), passes.s()).delay()
        for number in range(50)
    ]

    assert [n + 3 for n in range(50)] == [each.get(timeout=TIMEOUT) for each in results]
    assert 150 == len(the_ledger.entries("start"))
    assert {} == the_ledger.repeated()


def test_a_cancel_asks_what_runs_and_starts_nothing_more(start_worker, the_ledger):
    """One that waits is cancelled at once; the workflow, when none of it runs."""
    start_worker(threads=1, pgqueue=MODULES)
    header = [control_tasks.until_cancelled.s(then="return") for _ in range(3)]
    result = chord(header, give.si("body"), on_error=crash_tasks.record.si(1)).delay()
    wait_for(lambda: the_ledger.entries("start"), what="one runs")

    assert result.cancel()
    row = ended(result, "cancelled")

    assert {"succeeded": 1, "cancelled": 3, "not needed": 1} == states(result)
    assert (1, 3) == (row.succeeded, row.cancelled)
    assert not Job.objects.exists()
    assert 1 == len(the_ledger.entries("start"))


def test_a_group_fails_when_all_of_it_has_ended(start_worker, the_ledger):
    """Its on_error is called once, by whichever member ends last."""
    for _ in range(2):
        start_worker(threads=4, pgqueue=MODULES, wait=False)
    header = [
        passes.s(n) if n % 2 else crash_tasks.reject_recorded.s("no") for n in range(40)
    ]

    result = group(header, on_error=crash_tasks.record.s()).delay()
    row = ended(result, "failed")

    assert (20, 20) == (row.succeeded, row.dead)
    told = wait_for(lambda: the_ledger.entries("end")[-1].note, what="on_error")
    wait_for(lambda: not Job.objects.exists(), what="on_error has ended")
    told = [e.note for e in the_ledger.entries("end") if isinstance(e.note, dict)]
    assert [(result.id, 20, 10)] == [
        (each["workflow"], each["failed"], len(each["steps"])) for each in told
    ]
    with pytest.raises(WorkflowFailed, match="is dead"):
        result.get(timeout=0)
