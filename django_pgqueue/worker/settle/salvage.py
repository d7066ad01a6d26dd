"""
Salvage: ends an attempt that a bug of ours has cut off, so that its job goes on.

Everything that a task can do ends as an outcome. What is raised around it is not the
task's, but the attempt is over all the same; and its lease would be renewed for as long
as the process lives.
"""

from __future__ import annotations

from datetime import timedelta

from django_pgqueue.conf import Settings
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.outcome import Performed, Retried, outcome_after
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.worker.lease.leases import Leases
from django_pgqueue.worker.settle.settler import Settlement, Settler

# Where not even the policy of its task can be asked.
AGAIN = timedelta(minutes=1)


def salvage(
    job: Claimed,
    error: BaseException,
    *,
    leases: Leases,
    settler: Settler,
    settings: Settings,
) -> None:
    """Settle a job, and those of its run, as failed with *error*, unless they are."""
    for each in (job, *(held.job for held in leases.others(job))):
        # In this order: what leaves the settler is no longer held.
        if settler.has(each):
            continue
        if leases.get(each) is None and not leases.is_settled(each):
            continue
        settler.put(Settlement(each, _failed(each, error, settings)))


def _failed(job: Claimed, error: BaseException, settings: Settings) -> Performed:
    try:
        options = find_task(job.task).resolve(job.queue, settings)
        return Performed(outcome_after(job, options, error), error)
    except Exception:
        return Performed(Retried(AGAIN), error)
