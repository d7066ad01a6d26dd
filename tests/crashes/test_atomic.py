"""
atomic=True under faults: whatever dies, each job's row is written exactly once.

A tenth of full size; ``make faults`` runs the rest. Every test also shows that its
fault has bitten: some jobs ran more than once.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.app import control_tasks
from tests.app.models import Effect
from tests.harness.proxy import Proxy
from tests.harness.worker_process import enqueue, wait_until_final

# A job that is hit is not given up: it is as innocent as the others.
PATIENT = {"CRASHES_MAX": 100, "DELIVERIES_MAX": 1_000}


def assert_exactly_once(jobs, timeout=60.0):
    """Each job succeeded, and what it wrote is there once."""
    final = wait_until_final(jobs, timeout)
    assert {"succeeded"} == {place.state for place in final.values()}
    written = Counter(Effect.objects.values_list("job", flat=True))
    assert dict.fromkeys(jobs, 1) == dict(written)
    return final


@pytest.mark.parametrize("harm, starts", [("cut", 1), ("drop", 2)])
def test_the_connection_ends_at_the_commit(start_worker, the_ledger, harm, starts):
    """
    cut: the server has committed and its answer is lost: nothing runs again. drop: the
    COMMIT never arrives: the server rolls back, and the job runs again. Which of the
    two it was is looked up.
    """
    jobs = enqueue(control_tasks.atomic_harmed, 40, harm=harm)
    with Proxy() as proxy:
        worker = start_worker(
            "--queues=default", pgqueue=PATIENT, databases={"default": proxy.database}
        )
        assert_exactly_once(jobs)
        assert 0 == worker.stop()

    assert dict.fromkeys(jobs, starts) == dict(the_ledger.starts())
    assert [] == the_ledger.entries("stale")
    committed = worker.lines("committed  alias=default although COMMIT")
    assert (40 if harm == "cut" else 0) == len(committed)


def test_a_kill_before_the_commit_leaves_nothing(start_worker, the_ledger, failpoint):
    """Between write and ack: what it wrote is rolled back, and the job runs again."""
    jobs = enqueue(control_tasks.atomic_effect, 20)
    killing = failpoint("running", times=2)

    start_worker(threads=1, failpoint=killing, pgqueue=PATIENT)
    assert_exactly_once(jobs)

    assert 2 == len(killing.hits())
    assert 2 == sum(the_ledger.repeated().values())
