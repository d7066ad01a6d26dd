"""The nouns: schema, constraints and querysets; behaviour stands in queues/."""

from django_pgqueue.models.bulk_act import BulkAct
from django_pgqueue.models.dedup import DedupCall, DedupWindow
from django_pgqueue.models.job import ArchivedJob, DeadLetter, Job
from django_pgqueue.models.job_field import JobField, JobReference
from django_pgqueue.models.mail_file import MailFile, MailFileUse
from django_pgqueue.models.monitoring import Alert, TaskSpan
from django_pgqueue.models.pipeline import (
    EnqueuedHour,
    Erasure,
    Export,
    Failure,
    FailureHour,
    PipelineRun,
    TaskHour,
)
from django_pgqueue.models.queue import Lane, Permit, Queue, Worker
from django_pgqueue.models.schedule import Schedule, Tick
from django_pgqueue.models.subscription import ConsumerGroup, Position, Subscription
from django_pgqueue.models.topic import (
    Generation,
    InboxEntry,
    LogDay,
    LogState,
    Message,
    Topic,
)
from django_pgqueue.models.workflow import DurableStep, Output, Signal, Step, Workflow

__all__ = [
    "Alert",
    "ArchivedJob",
    "BulkAct",
    "ConsumerGroup",
    "DeadLetter",
    "DedupCall",
    "DedupWindow",
    "DurableStep",
    "EnqueuedHour",
    "Erasure",
    "Export",
    "Failure",
    "FailureHour",
    "Generation",
    "InboxEntry",
    "Job",
    "JobField",
    "JobReference",
    "Lane",
    "LogDay",
    "LogState",
    "MailFile",
    "MailFileUse",
    "Message",
    "Output",
    "Permit",
    "PipelineRun",
    "Position",
    "Queue",
    "Schedule",
    "Signal",
    "Step",
    "Subscription",
    "TaskHour",
    "TaskSpan",
    "Tick",
    "Topic",
    "Worker",
    "Workflow",
]
