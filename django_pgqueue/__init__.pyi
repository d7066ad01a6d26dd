# Public names for type checkers; tests/test_public_api.py compares them.
# ruff: noqa: I001  # Names of one module stay together.

from django_pgqueue.exceptions import (
    DeclarationError as DeclarationError,
    DuplicateJob as DuplicateJob,
    EmbeddedServerError as EmbeddedServerError,
    EnqueueError as EnqueueError,
    InvalidArgument as InvalidArgument,
    InvalidOption as InvalidOption,
    JobFailed as JobFailed,
    JobNotFound as JobNotFound,
    LeaseLost as LeaseLost,
    MessagesLost as MessagesLost,
    MissingExtra as MissingExtra,
    OutputFull as OutputFull,
    PayloadTooLarge as PayloadTooLarge,
    PgQueueError as PgQueueError,
    PipelineBusy as PipelineBusy,
    PipelineStopped as PipelineStopped,
    PositionLost as PositionLost,
    QueueFull as QueueFull,
    RemoteError as RemoteError,
    ResultTimeout as ResultTimeout,
    ScheduleError as ScheduleError,
    SchemaError as SchemaError,
    SettingsError as SettingsError,
    SparkError as SparkError,
    SparkOptionError as SparkOptionError,
    TaskTimeout as TaskTimeout,
    TopicError as TopicError,
    TransactionAborted as TransactionAborted,
    UndecodablePayload as UndecodablePayload,
    UnknownTask as UnknownTask,
    WorkflowFailed as WorkflowFailed,
    WorkflowNotFound as WorkflowNotFound,
    WrongDatabase as WrongDatabase,
    WrongState as WrongState,
)
from django_pgqueue.log.message import Message as Message
from django_pgqueue.models.job_field import JobField as JobField
from django_pgqueue.options.breaker import Backlog as Backlog
from django_pgqueue.options.breaker import Breaker as Breaker
from django_pgqueue.options.lanes import (
    Group as Group,
    Limit as Limit,
    Rate as Rate,
)
from django_pgqueue.options.retry import Retry as Retry
from django_pgqueue.pull.message import PullMessage as PullMessage
from django_pgqueue.pull.queue import (
    PullQueue as PullQueue,
    queue as queue,
)
from django_pgqueue.schedules.declare import (
    cron as cron,
    every as every,
)
from django_pgqueue.tasks.accumulate import (
    Accumulate as Accumulate,
    Call as Call,
)
from django_pgqueue.tasks.as_completed import as_completed as as_completed
from django_pgqueue.tasks.batch import (
    Batch as Batch,
    batch as batch,
    batch_of as batch_of,
    find_batch as find_batch,
)
from django_pgqueue.tasks.canvas import (
    Signature as Signature,
    chain as chain,
    chord as chord,
    group as group,
)
from django_pgqueue.tasks.context import JobContext as JobContext
from django_pgqueue.tasks.declare import task as task
from django_pgqueue.tasks.durable import (
    asignal as asignal,
    signal as signal,
)
from django_pgqueue.tasks.raised import (
    Cancel as Cancel,
    Reject as Reject,
    RetryLater as RetryLater,
    Snooze as Snooze,
)
from django_pgqueue.tasks.result import JobResult as JobResult
from django_pgqueue.tasks.output import Emitted as Emitted
from django_pgqueue.tasks.unique import Unique as Unique
from django_pgqueue.tasks.workflow_result import WorkflowResult as WorkflowResult
from django_pgqueue.topics.captured import capture_actor as capture_actor
from django_pgqueue.topics.changes import Change as Change
from django_pgqueue.topics.consume import consume as consume
from django_pgqueue.topics.inbox import (
    ainbox as ainbox,
    inbox as inbox,
)
from django_pgqueue.topics.write_after import Publication as Publication
from django_pgqueue.topics.publish import (
    apublish as apublish,
    apublish_many as apublish_many,
    publish as publish,
    publish_many as publish_many,
)
from django_pgqueue.topics.publish import (
    acancel_message as acancel_message,
    cancel_message as cancel_message,
)
from django_pgqueue.topics.subscribe import subscribe as subscribe
from django_pgqueue.topics.topic import (
    Topic as Topic,
    topic as topic,
)
from django_pgqueue.workflows.flow import flow as flow
from django_pgqueue.workflows.saga import saga as saga

__version__: str
