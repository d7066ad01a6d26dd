"""
Background tasks and messaging for Django, in the PostgreSQL you already run.

The public names are imported when they are first used (PEP 562), so that importing a
submodule does not import Django; Spark executors have none.
"""

from importlib import import_module
from typing import Any

# The module of each public name. Type checkers read __init__.pyi instead.
_MODULES = {
    "Accumulate": "tasks.accumulate",
    "Backlog": "options.breaker",
    "Batch": "tasks.batch",
    "Breaker": "options.breaker",
    "Call": "tasks.accumulate",
    "Cancel": "tasks.raised",
    "Change": "topics.changes",
    "DeclarationError": "exceptions",
    "DuplicateJob": "exceptions",
    "EmbeddedServerError": "exceptions",
    "Emitted": "tasks.output",
    "EnqueueError": "exceptions",
    "Group": "options.lanes",
    "InvalidArgument": "exceptions",
    "InvalidOption": "exceptions",
    "JobContext": "tasks.context",
    "JobFailed": "exceptions",
    "JobField": "models.job_field",
    "JobNotFound": "exceptions",
    "JobResult": "tasks.result",
    "LeaseLost": "exceptions",
    "Limit": "options.lanes",
    "Message": "log.message",
    "MessagesLost": "exceptions",
    "MissingExtra": "exceptions",
    "OutputFull": "exceptions",
    "PayloadTooLarge": "exceptions",
    "PgQueueError": "exceptions",
    "PipelineBusy": "exceptions",
    "PipelineStopped": "exceptions",
    "PositionLost": "exceptions",
    "Publication": "topics.write_after",
    "PullMessage": "pull.message",
    "PullQueue": "pull.queue",
    "QueueFull": "exceptions",
    "Rate": "options.lanes",
    "Reject": "tasks.raised",
    "RemoteError": "exceptions",
    "ResultTimeout": "exceptions",
    "Retry": "options.retry",
    "RetryLater": "tasks.raised",
    "ScheduleError": "exceptions",
    "SchemaError": "exceptions",
    "SettingsError": "exceptions",
    "Signature": "tasks.canvas",
    "Snooze": "tasks.raised",
    "SparkError": "exceptions",
    "SparkOptionError": "exceptions",
    "TaskTimeout": "exceptions",
    "Topic": "topics.topic",
    "TopicError": "exceptions",
    "TransactionAborted": "exceptions",
    "UndecodablePayload": "exceptions",
    "Unique": "tasks.unique",
    "UnknownTask": "exceptions",
    "WorkflowFailed": "exceptions",
    "WorkflowNotFound": "exceptions",
    "WorkflowResult": "tasks.workflow_result",
    "WrongDatabase": "exceptions",
    "WrongState": "exceptions",
    "acancel_message": "topics.publish",
    "ainbox": "topics.inbox",
    "apublish": "topics.publish",
    "apublish_many": "topics.publish",
    "as_completed": "tasks.as_completed",
    "asignal": "tasks.durable",
    "batch": "tasks.batch",
    "batch_of": "tasks.batch",
    "cancel_message": "topics.publish",
    "capture_actor": "topics.captured",
    "chain": "tasks.canvas",
    "chord": "tasks.canvas",
    "consume": "topics.consume",
    "cron": "schedules.declare",
    "every": "schedules.declare",
    "find_batch": "tasks.batch",
    "flow": "workflows.flow",
    "group": "tasks.canvas",
    "inbox": "topics.inbox",
    "publish": "topics.publish",
    "publish_many": "topics.publish",
    "queue": "pull.queue",
    "saga": "workflows.saga",
    "signal": "tasks.durable",
    "subscribe": "topics.subscribe",
    "task": "tasks.declare",
    "topic": "topics.topic",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = _find_version()
    elif name in _MODULES:
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # The next use costs nothing.
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


def _find_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("dj-pgqueue")
    except PackageNotFoundError:  # A folder on sys.path, as Spark sends to executors.
        return "0+unknown"
