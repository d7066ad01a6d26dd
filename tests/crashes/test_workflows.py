"""Kills and cuts while workflows advance: each step starts once, each workflow ends."""

from __future__ import annotations

import pytest

from django_pgqueue import chain, chord
from django_pgqueue.models import Workflow
from tests.app import crash_tasks
from tests.app.workflow_tasks import passes, total
from tests.harness.proxy import Proxy
from tests.harness.worker_process import wait_until_final

MODULES = {"TASK_MODULES": ["crash_tasks", "workflow_tasks"]}
# The poison limit is not what is tested here.
PATIENT = {**MODULES, "CRASHES_MAX": 100, "DELIVERIES_MAX": 1_000}

MEMBERS = 8


@pytest.mark.parametrize(
    "point,repeats",
    [("running", 2), ("ack.before", 2), ("ack.after", 0)],
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
