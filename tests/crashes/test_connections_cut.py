"""The network fails in the worst moment: an answer is lost, a listener goes deaf."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.models import ArchivedJob
from tests.app import crash_tasks
from tests.harness.proxy import Proxy
from tests.harness.waiting import patience
from tests.harness.worker_process import enqueue, wait_until_dry, wait_until_final

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


@pytest.mark.slow
def test_a_deaf_listener_is_found_out_and_replaced(start_worker, the_ledger, proxy):
    """
    Its connection stays open and nothing comes through. Within the proof's interval
    and patience, 20 s, it reconnects, and what came meanwhile is found.
    """
    worker = start_worker(
        "--queues=default",
        databases={"listen": proxy.database},
        pgqueue={"LISTEN_DATABASE": "listen"},
    )
    wait_until_final(enqueue(crash_tasks.record))
    wait_until_dry(the_ledger)

    assert 1 == proxy.mute(b"pgqueue listener")
    (unheard,) = enqueue(crash_tasks.record)
    worker.wait_for_lines("deaf ", timeout=25)
    wait_until_final([unheard])
    (heard,) = enqueue(crash_tasks.record)
    wait_until_final([heard])

    row = ArchivedJob.objects.get(pk=heard)
    assert row.started_at - row.enqueued_at < timedelta(seconds=patience())
    row = ArchivedJob.objects.get(pk=unheard)
    assert timedelta(seconds=1) < row.started_at - row.enqueued_at
