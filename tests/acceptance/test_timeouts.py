"""Timeouts: what becomes of the job, of its process, and of the jobs beside it."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_pgqueue.models import DeadLetter, Job
from tests.app import control_tasks, crash_tasks
from tests.harness.worker_process import enqueue, wait_until_final

pytestmark = pytest.mark.smoke


@pytest.mark.slow
def test_a_hard_timeout_replaces_the_process_and_costs_its_neighbours_nothing(
    start_worker, the_ledger, gate
):
    """
    A job beside it gets the grace to finish. Jobs that were claimed ahead go back as
    if never claimed: they start once, in the next process, with their first attempt.
    """
    modules = {"TASK_MODULES": ["crash_tasks", "short_hard_grace"]}
    worker = start_worker(threads=2, pgqueue=modules)
    # Quick ones, so that the worker claims ahead.
    wait_until_final(enqueue(crash_tasks.record, 20))
    # One commit, hence one claim: what the two threads do not take is claimed ahead.
    with transaction.atomic():
        (stuck,) = enqueue(crash_tasks.stuck)
        (beside,) = enqueue(crash_tasks.record_through_gate, gate=str(gate))
        ahead = enqueue(crash_tasks.record, 30)

    worker.wait_for_lines(f"ignored    job={stuck} ", timeout=40)
    worker.wait_for_lines("stopping ", timeout=40)
    # Its thread runs still, as long as its neighbour does.
    assert Job.objects.filter(pk=stuck, leased_by__isnull=False).exists()
    gate.touch()
    final = wait_until_final([stuck, beside, *ahead])

    assert ("dead", "timeout", 0) == (
        final[stuck].table,
        final[stuck].state,
        final[stuck].crashes,
    )
    assert ("succeeded", 1) == (final[beside].state, final[beside].deliveries)
    assert {("succeeded", 1, 0)} == {
        (final[job].state, final[job].attempt, final[job].crashes) for job in ahead
    }
    assert max(final[job].deliveries for job in ahead) > 1, "none was claimed ahead"
    assert {} == the_ledger.repeated()
    assert 2 == len(worker.names())
    (error,) = DeadLetter.objects.get(pk=stuck).errors
    assert "ran longer than its timeout of 0.3 s" in error["message"]


def test_a_soft_timeout_is_retried_by_the_policy(start_worker, the_ledger, gate):
    """As any failure, and its last attempt has the reason "timeout"."""
    (job,) = enqueue(control_tasks.too_slow_twice, gate=str(gate))
    start_worker()

    final = wait_until_final([job])

    assert ("dead", "timeout", 2) == (
        final[job].table,
        final[job].state,
        final[job].attempt,
    )
    assert {job: 2} == dict(the_ledger.starts())
