"""The network fails in the worst moment: an answer is lost, a listener goes deaf."""

from __future__ import annotations

import pytest

from tests.app import crash_tasks
from tests.harness.proxy import Proxy
from tests.harness.worker_process import enqueue, wait_until_final

pytestmark = pytest.mark.smoke


@pytest.fixture
def proxy():
    """A running proxy in front of the test database's server."""
    with Proxy() as proxy:
        yield proxy


@pytest.mark.parametrize(
    "task,statement,starts,end",
    [
        (crash_tasks.record, b"INTO pgqueue_archived_job", 1, ("archive", "succeeded")),
        (
            crash_tasks.reject_recorded,
            b"INTO pgqueue_dead_letter",
            1,
            ("dead", "rejected"),
        ),
        (crash_tasks.fail_recorded, b"attempts_back", 3, ("dead", "exhausted")),
    ],
    ids=["ack", "dead", "retry"],
)
def test_a_settle_whose_answer_was_lost_is_looked_up_and_not_repeated(
    start_worker, the_ledger, proxy, task, statement, starts, end
):
    """
    The connection ends between the commit and its answer. The worker finds that the
    write was applied: the job is neither run again nor counted as stale.
    """
    worker = start_worker("--queues=default", databases={"default": proxy.database})
    # The settler's connection is opened by its first write.
    wait_until_final(enqueue(crash_tasks.record))
    assert 1 == proxy.cut_at(b"pgqueue settler", statement)

    kwargs = {"why": "no"} if task is crash_tasks.reject_recorded else {}
    (job,) = enqueue(task, **kwargs)
    assert proxy.cut_done.wait(20)
    final = wait_until_final([job])

    assert end == (final[job].table, final[job].state)
    assert starts == the_ledger.starts()[job]
    assert 0 == final[job].crashes
    worker.wait_for_lines("recovered  loop=settler")
    after = enqueue(crash_tasks.record, 5)
    wait_until_final(after)
    assert [] == the_ledger.entries("stale")
    assert 0 == worker.stop()
    assert worker.lines(r"stopped .* stale=0 ")
