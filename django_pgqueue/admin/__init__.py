"""
For people: what waits, what ran and what gave up, in Django's admin.

One file a page. Every page reads PGQUEUE["DATABASE"] and is read-only, except that
whoever has the permission ``pgqueue.retry`` may make waiting jobs due and send dead
letters back. Arguments, results and tracebacks need ``pgqueue.view_payload``.
"""

from __future__ import annotations

from django_pgqueue.admin.archive import ArchivedJobAdmin
from django_pgqueue.admin.dead_letters import DeadLetterAdmin
from django_pgqueue.admin.jobs import JobAdmin
from django_pgqueue.admin.queues import QueueAdmin
from django_pgqueue.admin.workers import WorkerAdmin

__all__ = [
    "ArchivedJobAdmin",
    "DeadLetterAdmin",
    "JobAdmin",
    "QueueAdmin",
    "WorkerAdmin",
]
