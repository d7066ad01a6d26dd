"""
Background tasks and messaging for Django, in the PostgreSQL you already run.

The public names are loaded when they are first used (PEP 562): importing a submodule,
as Spark executors do, pulls in no Django.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_pgqueue.exceptions import (
        DeclarationError,
        DuplicateJob,
        EmbeddedServerError,
        EnqueueError,
        InvalidArgument,
        InvalidOption,
        JobFailed,
        JobNotFound,
        LeaseLost,
        MessagesLost,
        MissingExtra,
        OutputFull,
        PayloadTooLarge,
        PgQueueError,
        PipelineBusy,
        PipelineStopped,
        PositionLost,
        QueueFull,
        RemoteError,
        ResultTimeout,
        ScheduleError,
        SchemaError,
        SettingsError,
        SparkError,
        SparkOptionError,
        TaskTimeout,
        TopicError,
        TransactionAborted,
        UndecodablePayload,
        UnknownTask,
        WorkflowFailed,
        WorkflowNotFound,
        WrongDatabase,
        WrongState,
    )
    from django_pgqueue.log.message import Message
    from django_pgqueue.models.job_field import JobField
    from django_pgqueue.options.backlog import Backlog
    from django_pgqueue.options.breaker import Breaker
    from django_pgqueue.options.lanes import Group, Limit, Rate
    from django_pgqueue.options.retry import Retry
    from django_pgqueue.pull.message import PullMessage
    from django_pgqueue.pull.queue import PullQueue, queue
    from django_pgqueue.schedules.declare import cron, every
    from django_pgqueue.tasks.accumulate import Accumulate, Call
    from django_pgqueue.tasks.as_completed import as_completed
    from django_pgqueue.tasks.batch import Batch, batch, batch_of, find_batch
    from django_pgqueue.tasks.canvas import Signature, chain, chord, group
    from django_pgqueue.tasks.context import JobContext
    from django_pgqueue.tasks.declare import task
    from django_pgqueue.tasks.durable import asignal, signal
    from django_pgqueue.tasks.raised import Cancel, Reject, RetryLater, Snooze
    from django_pgqueue.tasks.result import JobResult
    from django_pgqueue.tasks.stream import Emitted
    from django_pgqueue.tasks.unique import Unique
    from django_pgqueue.tasks.workflow_result import WorkflowResult
    from django_pgqueue.topics.captured import capture_actor
    from django_pgqueue.topics.changes import Change
    from django_pgqueue.topics.consume import consume
    from django_pgqueue.topics.inbox import ainbox, inbox
    from django_pgqueue.topics.publication import Publication
    from django_pgqueue.topics.publish import (
        apublish,
        apublish_many,
        publish,
        publish_many,
    )
    from django_pgqueue.topics.scheduled import acancel_message, cancel_message
    from django_pgqueue.topics.subscribe import subscribe
    from django_pgqueue.topics.topic import Topic, topic
    from django_pgqueue.workflows.flow import flow
    from django_pgqueue.workflows.saga import saga

__version__: str  # Read when it is first used.

# Where each public name lives.
_HOMES = {
    "task": "tasks.declare",
    "chain": "tasks.canvas",
    "group": "tasks.canvas",
    "chord": "tasks.canvas",
    "signal": "tasks.durable",
    "asignal": "tasks.durable",
    "batch": "tasks.batch",
    "batch_of": "tasks.batch",
    "find_batch": "tasks.batch",
    "Batch": "tasks.batch",
    "flow": "workflows.flow",
    "saga": "workflows.saga",
    "Signature": "tasks.canvas",
    "WorkflowResult": "tasks.workflow_result",
    "queue": "pull.queue",
    "PullQueue": "pull.queue",
    "PullMessage": "pull.message",
    "cron": "schedules.declare",
    "every": "schedules.declare",
    "subscribe": "topics.subscribe",
    "consume": "topics.consume",
    "capture_actor": "topics.captured",
    "Change": "topics.changes",
    "inbox": "topics.inbox",
    "ainbox": "topics.inbox",
    "cancel_message": "topics.scheduled",
    "acancel_message": "topics.scheduled",
    "topic": "topics.topic",
    "publish": "topics.publish",
    "publish_many": "topics.publish",
    "apublish": "topics.publish",
    "apublish_many": "topics.publish",
    "Message": "log.message",
    "Publication": "topics.publication",
    "Topic": "topics.topic",
    "MessagesLost": "exceptions",
    "TopicError": "exceptions",
    "Accumulate": "tasks.accumulate",
    "Backlog": "options.backlog",
    "Breaker": "options.breaker",
    "Call": "tasks.accumulate",
    "Group": "options.lanes",
    "Limit": "options.lanes",
    "Rate": "options.lanes",
    "Retry": "options.retry",
    "Cancel": "tasks.outcome",
    "JobContext": "tasks.context",
    "JobResult": "tasks.result",
    "as_completed": "tasks.as_completed",
    "Emitted": "tasks.stream",
    "Reject": "tasks.outcome",
    "RetryLater": "tasks.outcome",
    "Snooze": "tasks.outcome",
    "Unique": "tasks.unique",
    "JobField": "models.job_field",
    "DeclarationError": "exceptions",
    "DuplicateJob": "exceptions",
    "EmbeddedServerError": "exceptions",
    "EnqueueError": "exceptions",
    "QueueFull": "exceptions",
    "InvalidArgument": "exceptions",
    "InvalidOption": "exceptions",
    "JobNotFound": "exceptions",
    "WrongState": "exceptions",
    "RemoteError": "exceptions",
    "ResultTimeout": "exceptions",
    "LeaseLost": "exceptions",
    "MissingExtra": "exceptions",
    "OutputFull": "exceptions",
    "JobFailed": "exceptions",
    "PayloadTooLarge": "exceptions",
    "PgQueueError": "exceptions",
    "PipelineBusy": "exceptions",
    "PipelineStopped": "exceptions",
    "PositionLost": "exceptions",
    "ScheduleError": "exceptions",
    "SchemaError": "exceptions",
    "SettingsError": "exceptions",
    "SparkError": "exceptions",
    "SparkOptionError": "exceptions",
    "TaskTimeout": "exceptions",
    "TransactionAborted": "exceptions",
    "UndecodablePayload": "exceptions",
    "UnknownTask": "exceptions",
    "WorkflowFailed": "exceptions",
    "WorkflowNotFound": "exceptions",
    "WrongDatabase": "exceptions",
}

__all__ = [
    "Accumulate",
    "Backlog",
    "Batch",
    "Breaker",
    "Call",
    "Cancel",
    "Change",
    "DeclarationError",
    "DuplicateJob",
    "EmbeddedServerError",
    "Emitted",
    "EnqueueError",
    "Group",
    "InvalidArgument",
    "InvalidOption",
    "JobContext",
    "JobFailed",
    "JobField",
    "JobNotFound",
    "JobResult",
    "LeaseLost",
    "Limit",
    "Message",
    "MessagesLost",
    "MissingExtra",
    "OutputFull",
    "PayloadTooLarge",
    "PgQueueError",
    "PipelineBusy",
    "PipelineStopped",
    "PositionLost",
    "Publication",
    "PullMessage",
    "PullQueue",
    "QueueFull",
    "Rate",
    "Reject",
    "RemoteError",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "ScheduleError",
    "SchemaError",
    "SettingsError",
    "Signature",
    "Snooze",
    "SparkError",
    "SparkOptionError",
    "TaskTimeout",
    "Topic",
    "TopicError",
    "TransactionAborted",
    "UndecodablePayload",
    "Unique",
    "UnknownTask",
    "WorkflowFailed",
    "WorkflowNotFound",
    "WorkflowResult",
    "WrongDatabase",
    "WrongState",
    "acancel_message",
    "ainbox",
    "apublish",
    "apublish_many",
    "as_completed",
    "asignal",
    "batch",
    "batch_of",
    "cancel_message",
    "capture_actor",
    "chain",
    "chord",
    "consume",
    "cron",
    "every",
    "find_batch",
    "flow",
    "group",
    "inbox",
    "publish",
    "publish_many",
    "queue",
    "saga",
    "signal",
    "subscribe",
    "task",
    "topic",
]


def __getattr__(name: str) -> Any:
    value: Any
    if name == "__version__":
        value = _version()
    elif name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Kept, so that the next use costs nothing. The function `task` has the same name
    # as no submodule of this package; `tasks` stays the package of that name.
    globals()[name] = value
    return value


def _version() -> str:
    """Return the installed distribution's version, which a tag has named."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("dj-pgqueue")
    except PackageNotFoundError:  # A folder on sys.path, as Spark sends to executors.
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
