"""How much memory a worker takes for messages that are large."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from django_pgqueue import topic
from django_pgqueue.models import ArchivedJob, Job, Message, Position
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.slow

HEAVY = {"TASK_MODULES": ["heavy_tasks"]}
MESSAGES, MEGABYTE = 250, 1_000_000
GROWS_MIB_MAX = 200


def peak_mib(pid):
    """Return the most that a process has ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) / 1024


def child_of(pid):
    """Return the only process that *pid* has started and that runs jobs."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@pytest.mark.slow
def test_many_messages_of_a_megabyte_fit_into_a_small_process(start_worker):
    """
    As one batch of a group, and as jobs of a subscription that are claimed together.

    Each compresses to a hundredth in its table, so that no size of rows tells.
    """
    worker = start_worker("--queues", "heavy", threads=2, pgqueue=HEAVY)
    process = child_of(worker.pid)
    before = peak_mib(process)

    for _ in range(MESSAGES // 50):
        topic("heavy").publish_many(["x" * MEGABYTE] * 50, key=lambda _: "k")
    wait_for(
        lambda: ArchivedJob.objects.filter(queue="heavy").count() == MESSAGES,
        what="the jobs",
    )
    last = Message.objects.latest("id").pk
    wait_for(
        Position.objects.filter(position__gte=last).exists,
        what="the group",
    )

    assert not Job.objects.exists()
    assert peak_mib(process) - before < GROWS_MIB_MAX
