"""
Every error of the package, in one tree.

Control flow that a task raises on purpose (Reject, Snooze, RetryLater) is not an
error and stands in tasks/outcome.py. This module imports nothing of the package, so
that storage code and Spark executors can use it without Django.

    PgQueueError
     ├── SettingsError            PGQUEUE in settings.py is wrong
     ├── DeclarationError         a @task (or its options) cannot be declared so
     ├── ScheduleError            a schedule is wrong, or never due
     ├── TopicError               a topic, message, subscription or group is wrong
     │    └── MessagesLost            retention has removed what a group has not read
     ├── EnqueueError             a job was not stored
     │    ├── InvalidArgument         an argument cannot travel as JSON
     │    ├── PayloadTooLarge         the arguments exceed PAYLOAD_BYTES_MAX
     │    ├── InvalidOption           queue, priority, delay … out of range
     │    ├── WrongDatabase           an open transaction on another alias
     │    ├── DuplicateJob            a live job, or a period, has its dedup key
     │    ├── QueueFull               the queue holds as many jobs as it may
     │    └── TransactionAborted      the transaction has met another one: run it again
     ├── UndecodablePayload       a stored row cannot become Python values
     ├── UnknownTask              no declared task has this name
     ├── JobNotFound              no table holds a job with this id
     ├── WrongState               a job cannot be edited, cancelled, retried as it is
     ├── JobFailed                get() found that the job will never have a result
     ├── ResultTimeout            get() waited for as long as it was told to
     ├── OutputFull               a task has emitted as much as it may
     ├── LeaseLost                the job belongs to another worker by now
     ├── TaskTimeout              raised inside a task that ran too long
     ├── RemoteError              stands for an error of a task, in a report
     ├── SchemaError              migrations or indexes the worker needs are missing
     ├── EmbeddedServerError      the embedded PostgreSQL cannot be used
     ├── MissingExtra             an optional package is not installed
     └── SparkError               the pipeline cannot reach Java, Spark or its data
          ├── SparkOptionError        an option of format("pgqueue") is wrong
          ├── PipelineBusy            another run is live, and needs the same
          └── PipelineStopped         a run was told to stop, or lost its place
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager


class PgQueueError(Exception):
    """The base of every error of this package; never raised itself."""


class SettingsError(PgQueueError, ValueError):
    """A key or a value of the PGQUEUE setting is wrong."""


class DeclarationError(PgQueueError, TypeError):
    """A function or its options cannot be declared as a task, or a capture be made."""


class ScheduleError(PgQueueError, ValueError):
    """
    A schedule cannot be: its expression, its zone or its task is wrong.

    part: The argument of @cron or @every that it is about, as a form shows it there;
    None: no single one.
    """

    def __init__(self, text: str, *, part: str | None = None) -> None:
        super().__init__(text)
        self.part = part


class TopicError(PgQueueError, ValueError):
    """A topic, a message's name, key or payload, a subscription or a group is wrong."""


class MessagesLost(TopicError):
    """What a consumer group has not read yet was removed by its topic's retention."""


class EnqueueError(PgQueueError):
    """
    A job was not stored.

    But for DuplicateJob and TransactionAborted, nothing was to be written yet.
    """


class InvalidArgument(EnqueueError, TypeError):
    """An argument of a job cannot be stored as JSON."""

    def __init__(self, *, task: str, path: str, problem: str) -> None:
        super().__init__(f"{task}: {path} {problem}")
        self.task = task
        self.path = path


class PayloadTooLarge(EnqueueError, ValueError):
    """The encoded arguments exceed PAYLOAD_BYTES_MAX."""

    def __init__(
        self,
        *,
        task: str,
        payload_bytes: int,
        payload_bytes_max: int,
        what: str = "arguments",
        way_out: str = "Store the data and send its primary key",
        setting: str | None = "PGQUEUE['PAYLOAD_BYTES_MAX']",
    ) -> None:
        counted = "bytes" if setting is None else "bytes as JSON"
        raised = "" if setting is None else f", or raise {setting}"
        super().__init__(
            f"{task}: {what} take {payload_bytes:,} {counted}; the limit is "
            f"{payload_bytes_max:,}. {way_out}{raised}."
        )
        self.task = task
        self.payload_bytes = payload_bytes
        self.payload_bytes_max = payload_bytes_max


class InvalidOption(EnqueueError, ValueError):
    """An option of a job (queue, priority, delay, …) is out of its range."""


class WrongDatabase(EnqueueError, RuntimeError):
    """A transaction is open on another alias than the one that stores jobs."""

    def __init__(
        self,
        *,
        task: str,
        open_alias: str,
        queue_alias: str,
        is_message: bool = False,
        later: str | None = None,
    ) -> None:
        kind = "message" if is_message else "job"
        later = later or (
            f"Publish after the commit, in transaction.on_commit(…, "
            f"using={open_alias!r})"
            if is_message
            else f"Enqueue after the commit with {task.rpartition('.')[2]}."
            f"on_commit().delay(…)"
        )
        super().__init__(
            f"{task}: a transaction is open on database {open_alias!r}, but {kind}s "
            f"are stored in {queue_alias!r}, so the {kind} would not roll back with "
            f"it. {later}, or open the transaction on {queue_alias!r}."
        )
        self.task = task
        self.open_alias = open_alias
        self.queue_alias = queue_alias


class DuplicateJob(EnqueueError, RuntimeError):
    """
    A call with Unique(conflict="error") found its dedup key taken; nothing is stored.

    Attributes:
        job_id: The job that has the key, or was the last of the period.
    """

    def __init__(self, *, task: str, job_id: int) -> None:
        super().__init__(
            f"{task}: job {job_id} has the same dedup key. Use that one, or say "
            f"conflict='skip', 'replace' or 'reschedule'."
        )
        self.task = task
        self.job_id = job_id


class QueueFull(EnqueueError, RuntimeError):
    """
    A queue holds as many jobs as PGQUEUE['QUEUES'] says; nothing is stored.

    Or a subscription has as many as its backlog=Backlog(…, on_full="refuse") says.

    Attributes:
        queue: Its name.
        depth: How many jobs it holds; one more than the limit is that many or more.
        depth_max: The limit.
        jobs: How many were to be stored.
        waited_seconds: For how long on_full="block" has waited; 0: it did not.
    """

    def __init__(
        self,
        *,
        task: str,
        queue: str,
        depth: int,
        depth_max: int,
        jobs: int = 1,
        waited_seconds: float = 0.0,
        said: str = "",
        way_out: str = "Try again later, or run more workers.",
    ) -> None:
        said = said or f"PGQUEUE['QUEUES'][{queue!r}]['depth_max']"
        held = f"{depth_max:,}+" if depth > depth_max else f"{depth:,}"
        waited = f", still after {waited_seconds:.0f} s" if waited_seconds else ""
        if jobs > depth_max:
            way_out = "They never fit: store fewer at a time."
        super().__init__(
            f"{task}: queue {queue!r} is full{waited}: it holds {held} jobs of "
            f"at most {depth_max:,}, and {jobs:,} more would come "
            f"({said}). Nothing is stored. {way_out}"
        )
        self.task = task
        self.queue = queue
        self.depth = depth
        self.depth_max = depth_max
        self.jobs = jobs
        self.waited_seconds = waited_seconds


class TransactionAborted(EnqueueError, RuntimeError):
    """
    An enqueue with a dedup key made the caller's open transaction fail.

    It and another transaction waited for one another's keys (40P01), or it runs at a
    stricter isolation level than READ COMMITTED and met what it cannot see (40001).
    Outside of a transaction, the enqueue itself is run again.

    Attributes:
        sqlstate: "40P01" or "40001".
    """

    def __init__(self, *, task: str, sqlstate: str) -> None:
        why = (
            "it and another transaction have waited for each other's dedup keys"
            if sqlstate == "40P01"
            else "at its isolation level it cannot see who has the dedup key"
        )
        super().__init__(
            f"{task}: PostgreSQL has aborted this transaction ({sqlstate}): {why}. "
            f"Roll it back and run it again. One bulk() takes several keys in an order "
            f"that cannot deadlock; so do single calls in the order of their keys."
        )
        self.task = task
        self.sqlstate = sqlstate


class UndecodablePayload(PgQueueError, ValueError):
    """A stored row cannot be turned into the arguments of its task."""


class UnknownTask(PgQueueError, LookupError):
    """No declared task, and no alias of one, has this name."""


class JobNotFound(PgQueueError, LookupError):
    """Neither the queue, nor the archive, nor the dead letters hold this id."""

    def __init__(self, job_id: int) -> None:
        super().__init__(
            f"Job {job_id} is not in the queue, the archive or the dead letters: it "
            f"never committed, or its retention (PGQUEUE['RETENTION']) has passed."
        )
        self.job_id = job_id


class WorkflowNotFound(PgQueueError, LookupError):
    """There is no workflow with this id."""

    def __init__(self, workflow_id: int) -> None:
        super().__init__(
            f"There is no workflow {workflow_id}: it never committed, or its retention "
            f"(PGQUEUE['RETENTION']['archive']) has passed."
        )
        self.workflow_id = workflow_id


class WrongState(PgQueueError, RuntimeError):
    """The state of a job or a workflow does not allow what was asked: an edit, say."""

    def __init__(
        self, job_id: int, status: str, problem: str, *, what: str = "Job"
    ) -> None:
        super().__init__(f"{what} {job_id} is {status}: {problem}")
        self.job_id = job_id
        self.status = status


class JobFailed(PgQueueError, RuntimeError):
    """
    A job ended without success: dead, cancelled or expired.

    Attributes:
        status: "dead", "cancelled" or "expired".
        reason: That of the dead letter, else None.
    """

    def __init__(
        self, job_id: int, status: str, reason: str | None, problem: str
    ) -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(f"Job {job_id} is {status}{why}. {problem}".strip())
        self.job_id = job_id
        self.status = status
        self.reason = reason


class WorkflowFailed(PgQueueError, RuntimeError):
    """
    A workflow ended without success: failed, cancelled or compensated.

    Attributes:
        status: "failed", "cancelled" or "compensated".
    """

    def __init__(self, workflow_id: int, status: str, problem: str) -> None:
        super().__init__(f"Workflow {workflow_id} is {status}. {problem}".strip())
        self.workflow_id = workflow_id
        self.status = status


class ResultTimeout(PgQueueError, TimeoutError):
    """A job had not ended when the time given to get() was over."""


class OutputFull(PgQueueError, RuntimeError):
    """
    One attempt of a job has emitted as many values, or bytes, as it may.

    Raised inside the task by ctx.emit(); what was emitted before stays.
    """

    def __init__(
        self, job_id: int, *, values: int, values_max: int, size: int, size_max: int
    ) -> None:
        super().__init__(
            f"Job {job_id}: this attempt has emitted {values:,} values, and with this "
            f"one {size:,} bytes as JSON; the limits are {values_max:,} and "
            f"{size_max:,}. Emit less often, or less; what is large belongs into the "
            f"result."
        )
        self.job_id = job_id


class LeaseLost(PgQueueError, RuntimeError):
    """
    The lease of a job ran out, or was taken over, while its task ran.

    Raised inside the task by its context. What the task does from here on is in vain:
    another worker may be running the job.
    """

    def __init__(self, job_id: int, delivery: int) -> None:
        super().__init__(
            f"Job {job_id}: delivery {delivery} has lost its lease; another worker may "
            f"be running the job."
        )
        self.job_id = job_id
        self.delivery = delivery


class PositionLost(PgQueueError, RuntimeError):
    """
    A partition that receive() had leased is somebody else's by now, or may be.

    The lease was over, somebody sought, or retention has removed what comes next.
    Nothing was written: what was not committed comes again.

    Attributes:
        group: Its topic and its name, as "clicks/stats".
        partition: Which one.
    """

    def __init__(self, group: str, partition: int) -> None:
        super().__init__(
            f"The partition {partition} of the group {group} is leased to the caller "
            f"no more: the lease was over, or somebody sought. Nothing has moved, and "
            f"others get its messages. A longer lease, extend() or fewer messages at a "
            f"time help where handling them takes long.",
        )
        self.group = group
        self.partition = partition


class TaskTimeout(PgQueueError, TimeoutError):
    """Raised inside a task that has run longer than its timeout."""


class RemoteError(PgQueueError):
    """
    Stands for what a task raised, in a report of it; never raised itself.

    Its class is made for it: it has the name and the module of the exception's own
    class, and nothing else of it. str() is the message.
    """


class SchemaError(PgQueueError, RuntimeError):
    """The database lacks a migration, a table or an index that a worker needs."""


class EmbeddedServerError(PgQueueError, RuntimeError):
    """The embedded PostgreSQL server cannot be started, joined or stopped."""


class MissingExtra(PgQueueError, ImportError):
    """A package that an extra of this distribution brings is not installed."""

    def __init__(self, *, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed. It comes with the extra [{extra}] of this "
            f"distribution."
        )
        self.package = package
        self.extra = extra


class SparkError(PgQueueError, RuntimeError):
    """The data pipeline cannot reach what it needs: Java, Spark, or its database."""


class SparkOptionError(SparkError, ValueError):
    """An option, or the schema, of the data source pgqueue is wrong."""


class PipelineBusy(SparkError):
    """
    Another run of the pipeline job is live, and needs the same.

    Attributes:
        job: The name of the pipeline job.
        run: The id of the live run.
    """

    def __init__(
        self, job: str, run: int, hostname: str, pid: int, place: str | None = None
    ) -> None:
        both = "" if place is None else f", and both need {place}"
        super().__init__(
            f"The pipeline job {job} runs already: run {run}, process {pid} on "
            f"{hostname}{both}. Wait for it, or stop it: manage.py pgqueue_pipeline "
            f"stop {job} --run {run}"
        )
        self.job = job
        self.run = run


class PipelineStopped(SparkError):
    """Raised inside a pipeline job that was told to stop, or lost its place."""


# Characters of a value in an error.
SHOWN_MAX = 80


def shown(value: object) -> str:
    """Return *value* as an error shows it; its __repr__ may be long, or raise."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__qualname__}"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


@contextmanager
def raised_as(kind: type[Exception], before: str = "") -> Iterator[None]:
    """
    Raise as *kind*, in the same words, what a check of a value in the block raises.

    Args:
        kind: The class of the error.
        before: What the error begins with.
    """
    try:
        yield
    except (ValueError, DeclarationError) as error:
        raise kind(f"{before}{error}") from None


def check_whole(
    said: str,
    value: object,
    most: int,
    error: type[PgQueueError],
    *,
    least: int = 1,
    more: str = "",
) -> int:
    """
    Return *value* if it is a whole number from *least* to *most*, else raise *error*.

    Args:
        said: What the error begins with, with {} for the value.
        value: What was given.
        most: The largest number.
        error: The class of the error.
        least: The smallest number.
        more: What the error ends with.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:  # type: ignore[operator]
        head = said.replace("{}", shown(value))
        raise error(
            f"{head}: it must be a whole number from {least:,} to {most:,}{more}."
        )
    return value  # type: ignore[return-value]


def did_you_mean(word: str, known: list[str]) -> str:
    """Return ' Did you mean X?' for the nearest known word, else ''."""
    by_fold = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word.casefold(), list(by_fold), n=1)
    return f" Did you mean {by_fold[near[0]]!r}?" if near else ""
