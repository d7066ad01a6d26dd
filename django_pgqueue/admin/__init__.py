"""
For people: what waits, what ran and what gave up, in Django's admin.

One file a page. Every page reads PGQUEUE["DATABASE"], in a transaction whose statements
have a time limit, and is read-only but for its acts, each with a permission of its own.
Arguments, results, messages and tracebacks need ``pgqueue.view_payload``, and what
PGQUEUE["REDACT"] names is shown to nobody.
"""

from __future__ import annotations

from django_pgqueue.admin.bulk_acts import BulkActAdmin
from django_pgqueue.admin.consumer_groups import ConsumerGroupAdmin
from django_pgqueue.admin.dead_letters import DeadLetterAdmin
from django_pgqueue.admin.failures import FailureAdmin
from django_pgqueue.admin.jobs import ArchivedJobAdmin, JobAdmin
from django_pgqueue.admin.lanes import LaneAdmin
from django_pgqueue.admin.messages import InboxEntryAdmin, MessageAdmin
from django_pgqueue.admin.metrics import TaskHourAdmin
from django_pgqueue.admin.pipeline_runs import PipelineRunAdmin
from django_pgqueue.admin.queues import QueueAdmin, WorkerAdmin
from django_pgqueue.admin.schedules import ScheduleAdmin
from django_pgqueue.admin.subscriptions import SubscriptionAdmin
from django_pgqueue.admin.topics import TopicAdmin
from django_pgqueue.admin.workflows import WorkflowAdmin

__all__ = [
    "ArchivedJobAdmin",
    "BulkActAdmin",
    "ConsumerGroupAdmin",
    "DeadLetterAdmin",
    "FailureAdmin",
    "InboxEntryAdmin",
    "JobAdmin",
    "LaneAdmin",
    "MessageAdmin",
    "PipelineRunAdmin",
    "QueueAdmin",
    "ScheduleAdmin",
    "SubscriptionAdmin",
    "TaskHourAdmin",
    "TopicAdmin",
    "WorkerAdmin",
    "WorkflowAdmin",
]
