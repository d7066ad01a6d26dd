"""The nouns: schema, constraints and querysets; behaviour stands in queues/."""

from django_pgqueue.models.alert import Alert
from django_pgqueue.models.archived_job import ArchivedJob
from django_pgqueue.models.bulk_act import BulkAct
from django_pgqueue.models.consumer_group import ConsumerGroup, Position
from django_pgqueue.models.dead_letter import DeadLetter
from django_pgqueue.models.dedup_call import DedupCall
from django_pgqueue.models.dedup_window import DedupWindow
from django_pgqueue.models.durable import DurableStep, Signal
from django_pgqueue.models.enqueued_hour import EnqueuedHour
from django_pgqueue.models.erasure import Erasure
from django_pgqueue.models.export import Export
from django_pgqueue.models.failure import Failure, FailureHour
from django_pgqueue.models.inbox import InboxEntry
from django_pgqueue.models.job import Job
from django_pgqueue.models.job_field import JobField, JobReference
from django_pgqueue.models.label_hour import LabelHour
from django_pgqueue.models.lane import Lane
from django_pgqueue.models.mail_file import MailFile, MailFileUse
from django_pgqueue.models.output import Output
from django_pgqueue.models.permit import Permit
from django_pgqueue.models.pipeline_run import PipelineRun
from django_pgqueue.models.queue import Queue
from django_pgqueue.models.schedule import Schedule, Tick
from django_pgqueue.models.scheduled_message import ScheduledMessage
from django_pgqueue.models.subscription import Subscription
from django_pgqueue.models.task_hour import TaskHour
from django_pgqueue.models.task_span import TaskSpan
from django_pgqueue.models.topic import (
    Generation,
    LogDay,
    LogState,
    Message,
    Topic,
)
from django_pgqueue.models.worker import Worker
from django_pgqueue.models.workflow import Step, Workflow

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
    "LabelHour",
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
    "ScheduledMessage",
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
