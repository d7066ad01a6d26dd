"""
Declared: a task of django.tasks, and the one of ours that its jobs run as.

Django's Task is a value: using() makes new ones all the time. The function stays the
same, so that is what is declared once, under Django's name for it, module.qualname.
From then on a worker runs its jobs as those of any other task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, make_dataclass
from typing import Any, TypeVar, cast

from django_pgqueue.backends.django_api import (
    AnyContext,
    AnyResult,
    AnyTask,
    InvalidTask,
)
from django_pgqueue.backends.events import listen
from django_pgqueue.exceptions import DeclarationError
from django_pgqueue.options.table import options_of
from django_pgqueue.tasks import task as tasks
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.declare import declare_task
from django_pgqueue.tasks.options import TaskKeywords

T = TypeVar("T")

# What a task may be told beside Django's own options, in @task(…) or in OPTIONS.
OPTIONS = {
    name: option
    for name, option in options_of(TaskKeywords).items()
    if name not in ("queue", "priority", "name")
}


def with_options(base: type[T]) -> type[T]:
    """Return *base* with a field for each option."""
    made = make_dataclass(
        base.__name__,
        [(name, option.type, field(default=None)) for name, option in OPTIONS.items()],
        bases=(base,),
        namespace={"__doc__": base.__doc__, "__module__": base.__module__},
        frozen=True,
        slots=True,
        kw_only=True,
    )
    return cast("type[T]", made)


@with_options
class PgQueueTask(AnyTask):
    """
    What Django's @task makes with this backend; None: what OPTIONS say.

    The options are those of ``django_pgqueue.task``, with the same meaning and limits.
    """

    __slots__ = ()

    def delay(self, *args: Any, **kwargs: Any) -> AnyResult:
        """Store one job: enqueue(), under the name that Celery gives it."""
        return self.enqueue(*args, **kwargs)

    async def adelay(self, *args: Any, **kwargs: Any) -> AnyResult:
        """Store one job from async code: aenqueue()."""
        return await self.aenqueue(*args, **kwargs)


class PgQueueContext(AnyContext):
    """
    Django's context of a running task, with ours as ``job``.

        @task(takes_context=True)
        def import_file(context, path):
            context.attempt             # Django's
            context.job.progress(1, total=3)
    """

    __slots__ = ("job",)

    job: JobContext

    def __init__(self, *, task_result: AnyResult, job: JobContext) -> None:
        object.__setattr__(self, "task_result", task_result)
        object.__setattr__(self, "job", job)

    @property
    def attempt(self) -> int:
        """The number of this attempt; 1 for the first."""
        return self.job.attempt


class JobTask(tasks.Task[..., Any]):
    """The task that jobs of a django.tasks function run as."""

    django_task: AnyTask

    def run(
        self, context: JobContext, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call the function, with Django's context first if it takes one."""
        if not self.options.takes_context:
            return self.function(*args, **kwargs)
        from django_pgqueue.backends.results import running_result

        result = running_result(self.django_task, context, args, kwargs)
        return self.function(
            PgQueueContext(task_result=result, job=context), *args, **kwargs
        )


# By function: what was told, and the task that was declared so.
_job_tasks: dict[Callable[..., Any], tuple[Any, JobTask]] = {}


def job_task(
    django_task: AnyTask, defaults: Mapping[str, Any], backend: type
) -> JobTask:
    """
    Return the task that *django_task*'s jobs run as; declared when first asked for.

    Args:
        django_task: Ours, or a plain one of Django's that was given this backend.
        defaults: The backend's OPTIONS.
        backend: Its class, the sender of Django's signals.

    Raises:
        InvalidTask: Its options contradict each other, or its name is taken.
    """
    options = {name: getattr(django_task, name, None) for name in OPTIONS}
    options = {
        **{
            name: defaults.get(name) if said is None else said
            for name, said in options.items()
        },
        "name": django_task.module_path,
        "takes_context": django_task.takes_context,
    }
    function = django_task.func
    known = _job_tasks.get(function)
    if known is not None and known[0] == options:
        return known[1]
    try:
        made = declare_task(function, options, kind=JobTask)
    except DeclarationError as error:
        raise InvalidTask(str(error)) from error
    assert isinstance(made, JobTask)
    made.django_task = django_task
    listen(made, django_task, backend)
    _job_tasks[function] = (options, made)
    return made
