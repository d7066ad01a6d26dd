"""Admission: whether a claimed job may start here, asked when its turn has come."""

from __future__ import annotations

from django_pgqueue.conf import Settings
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.outcome import Cancelled
from django_pgqueue.tasks.perform import Performed, refuse
from django_pgqueue.worker.lease.leases import Held, Leases
from django_pgqueue.worker.settle.settler import Settlement


def admit(
    job: Claimed, now: float, leases: Leases, settings: Settings
) -> Held | Settlement:
    """Return the lease that a job may start with; or how it ends, as it may not."""
    held = leases.get(job)
    if held is None or now >= held.valid_until:
        # Its lease ran out before it could start, and somebody else may be running it
        # by now: the fence of the release knows.
        return Settlement(job, None)
    if held.is_cancelled:
        # It was asked to stop after the claim, while it waited here.
        return Settlement(job, Performed(Cancelled()))
    refused = refuse(job, settings)
    return held if refused is None else Settlement(job, refused)
