"""
PgQueueBackend: django.tasks on this queue.

    TASKS = {"default": {"BACKEND": "django_pgqueue.backends.tasks.PgQueueBackend"}}

A task declared with Django's @task becomes one of ours beside those declared with
``django_pgqueue.task``: the same rows, the same workers, the same admin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import ModuleType
from typing import Any

from django.core import checks
from django.db import connections

from django_pgqueue.backends.declared import (
    OPTIONS,
    JobTask,
    PgQueueTask,
    job_task,
)
from django_pgqueue.backends.django_api import (
    DEFAULT_TASK_BACKEND_ALIAS,
    DEFAULT_TASK_PRIORITY,
    DEFAULT_TASK_QUEUE_NAME,
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    InvalidTaskBackend,
    Task,
    TaskResultDoesNotExist,
    task_backends,
    task_enqueued,
)
from django_pgqueue.backends.results import BACKEND_HEADER, new_result, stored_result
from django_pgqueue.bounds import QUEUE_NAME
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import (
    DeclarationError,
    UnknownTask,
    did_you_mean,
    raised_as,
)
from django_pgqueue.options.checks import check_queue
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues.enqueue import Placement, enqueue_timed
from django_pgqueue.queues.find import read
from django_pgqueue.tasks.declare import checked_options
from django_pgqueue.tasks.enqueuer import Enqueuer
from django_pgqueue.tasks.inline import collecting, run_enqueued
from django_pgqueue.tasks.options import CallOptions
from django_pgqueue.tasks.registry import find_task

# PostgreSQL's bigint.
ID_MAX = 2**63 - 1


class Timed(Enqueuer[..., Any]):
    """Stores one job, and notes when: by the database's clock, and no query more."""

    __slots__ = ("enqueued_at",)

    def __init__(self, task: JobTask, options: CallOptions) -> None:
        super().__init__(task, options)
        # None: it was stored by a rule, or not at all.
        self.enqueued_at: datetime | None = None

    def _enqueue(
        self, cursor: Cursor, placement: Placement, *, args: str, kwargs: str
    ) -> int:
        job_id, self.enqueued_at = enqueue_timed(
            cursor, placement, args=args, kwargs=kwargs
        )
        return job_id


class PgQueueBackend(BaseTaskBackend):
    """
    Stores a job in the caller's transaction, as ``delay()`` does.

    OPTIONS hold defaults for the tasks of this backend: what our @task takes, but for
    names, queue and priority. QUEUES are the names that tasks may use, by default
    "default" alone; an empty list allows all.

    Raises:
        InvalidTaskBackend: OPTIONS has an unknown key or a value out of its range.
    """

    # How the app knows it among the backends of TASKS, without importing this module.
    is_pgqueue = True

    task_class = PgQueueTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._check_options(alias, self.options)

    def validate_task(self, task: AnyTask) -> None:
        """
        Check a task as Django does, and against what this queue allows.

        Raises:
            InvalidTask: What is wrong with it.
        """
        with raised_as(InvalidTask):
            check_queue(task.queue_name)
        super().validate_task(task)
        job_task(task, self.options, type(self))

    def enqueue(  # type: ignore[override]  # Of any task, whatever its parameters.
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        """
        Store one job, in the caller's transaction.

        With unique, debounce or throttle, the result may be that of the job which
        stands for this one.

        Raises:
            DuplicateJob: Its key is taken, and Unique(conflict="error").
            InvalidTask: The task cannot run on this backend.
            TypeError, ValueError: An argument is not JSON, or does not fit.
            PayloadTooLarge: They exceed PGQUEUE['PAYLOAD_BYTES_MAX'].
            QueueFull: The queue holds as many jobs as PGQUEUE['QUEUES'] says.
            WrongDatabase: A transaction is open on another alias than the queue's.
        """
        self.validate_task(task)
        result: AnyResult = new_result(task, self.alias, args, kwargs)
        options = CallOptions().with_(
            queue=task.queue_name,
            priority=int(task.priority),
            run_after=task.run_after,
        )
        if self.alias != DEFAULT_TASK_BACKEND_ALIAS:
            headers = {**options.headers, BACKEND_HEADER: self.alias}
            options = replace(options, headers=headers)
        enqueuer = Timed(job_task(task, self.options, type(self)), options)
        # Immediate mode runs it after all have heard that it is enqueued.
        with collecting() as waiting:
            stored = enqueuer.delay(*result.args, **result.kwargs)
        if enqueuer.enqueued_at is None:
            # By a rule: it may be another job, with a time and arguments of its own.
            result = self.get_result(str(stored.id))
        else:
            # A frozen dataclass, which Django's own backends fill in likewise.
            object.__setattr__(result, "id", str(stored.id))
            object.__setattr__(result, "enqueued_at", enqueuer.enqueued_at)
        if stored.created:
            task_enqueued.send(type(self), task_result=result)
        if get_settings().mode == "immediate":
            run_enqueued(waiting)
            result.refresh()
        return result

    async def aenqueue(  # type: ignore[override]  # As enqueue().
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        """Store one job from async code: as enqueue(), without a thread that waits."""
        from django_pgqueue.tasks.depth import patiently

        return await patiently(self.enqueue, task, args, kwargs)

    def get_result(self, result_id: str) -> AnyResult:
        """
        Return what is known of a job: one query.

        Raises:
            TaskResultDoesNotExist: No job has this id, its retention has passed, or it
                belongs to a task that was not declared with django.tasks.
        """
        row = None
        if isinstance(result_id, str) and result_id.isascii() and result_id.isdigit():
            job_id = int(result_id[:20])
            if job_id <= ID_MAX:
                with connections[get_settings().database].cursor() as cursor:
                    row = read(cursor, job_id)
        if row is None:
            raise TaskResultDoesNotExist(
                f"Job {result_id!r} is not in the queue, the archive or the dead "
                f"letters: it never committed, or its retention has passed."
            )
        try:
            task = find_task(row.task)
        except UnknownTask as error:
            raise TaskResultDoesNotExist(f"Job {result_id}: {error}") from error
        if not isinstance(task, JobTask):
            raise TaskResultDoesNotExist(
                f"Job {result_id} is one of {row.task}, which is no task of "
                f"django.tasks: look at it with django_pgqueue.JobResult({result_id})."
            )
        return stored_result(task.django_task, row)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Find queue names that no job could have."""
        return [
            checks.Error(
                f"TASKS[{self.alias!r}]['QUEUES'] has {name!r}, no queue name.",
                hint="Use 1 to 63 letters, digits, '_', '.' and '-', the first no '.' "
                "or '-'.",
                id="pgqueue.E009",
            )
            for name in sorted(self.queues, key=str)
            if not isinstance(name, str) or not QUEUE_NAME.fullmatch(name)
        ]

    @staticmethod
    def _check_options(alias: str, options: Mapping[str, Any]) -> None:
        key = f"TASKS[{alias!r}]['OPTIONS']"
        known = [name for name in OPTIONS if name != "aliases"]
        for name in options:
            if name not in known:
                raise InvalidTaskBackend(
                    f"{key} has the unknown key {name!r}."
                    f"{did_you_mean(str(name), known)}"
                )
        try:
            checked_options(options)
        except DeclarationError as error:
            raise InvalidTaskBackend(f"{key}: {error}") from error


def declare_found(modules: Iterable[ModuleType]) -> None:
    """
    Declare the tasks in *modules* that were declared for another backend.

    ``resize.using(backend="default").enqueue(…)`` gives a job of such a task to this
    queue; without this, no worker would know it.
    """
    ours = [
        backend
        for backend in task_backends.all()
        if isinstance(backend, PgQueueBackend)
    ]
    for module in modules:
        for found in list(vars(module).values()):
            if isinstance(found, Task) and not isinstance(found, PgQueueTask):
                job_task(found, ours[0].options, type(ours[0]))


def task(
    function: Callable[..., Any] | None = None,
    *,
    priority: int = DEFAULT_TASK_PRIORITY,
    queue_name: str = DEFAULT_TASK_QUEUE_NAME,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: bool = False,
    **options: Any,
) -> Any:
    """
    Declare a task of django.tasks, with our options also on Django 6.0.

    Django's own decorator passes options on to the backend from 6.1 on; this one has
    the same arguments and does so everywhere.

        from django_pgqueue.backends.tasks import task

        @task(queue_name="mail", retries=3, timeout="60s")
        def send_receipt(order_id): ...

    Raises:
        InvalidTask: The function or an option cannot be.
        TypeError: The backend's tasks have no such option.
    """

    def declare(function: Callable[..., Any]) -> Any:
        return task_backends[backend].task_class(
            func=function,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            takes_context=takes_context,
            run_after=None,
            **options,
        )

    return declare if function is None else declare(function)
