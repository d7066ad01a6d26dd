"""Task: what @task returns. A declared function that enqueues its calls."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from typing import Any, ParamSpec, TypeVar, Unpack

from asgiref.sync import markcoroutinefunction

from django_pgqueue.exceptions import (
    InvalidOption,
)
from django_pgqueue.options.checks import When
from django_pgqueue.options.durations import Duration
from django_pgqueue.options.table import takes
from django_pgqueue.tasks.context import inline_context
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.enqueuer import Enqueuer
from django_pgqueue.tasks.options import (
    OF_APPLY,
    ApplyKeywords,
    CallOptions,
    TaskOptions,
)
from django_pgqueue.tasks.payload import check_kinds
from django_pgqueue.tasks.registry import declare
from django_pgqueue.tasks.result import JobResult

P = ParamSpec("P")
R = TypeVar("R")

NO_OPTIONS = CallOptions()


class Task(Enqueuer[P, R], DeclaredTask):
    """
    A declared task. Made by @task; call it to run it inline, delay() to enqueue it.

    It is an Enqueuer, with all of its methods, whose calls say nothing more than
    their task does; and it has the attributes of a DeclaredTask.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        aliases: Sequence[str],
        options: TaskOptions,
    ) -> None:
        DeclaredTask.__init__(
            self, function, name=name, aliases=aliases, options=options
        )
        Enqueuer.__init__(self, self, NO_OPTIONS)
        declare(self)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the task here and now; no job, no retry, no middleware."""
        value: R = self.run(inline_context(self.name), args, kwargs)
        return value

    @takes("apply_async()", InvalidOption, OF_APPLY)
    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        countdown: Duration | None = None,
        eta: When | None = None,
        **options: Unpack[ApplyKeywords],
    ) -> JobResult[R]:
        """
        Store one job, in the words of Celery.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            countdown: A duration from now; with eta, an error.
            eta: A moment.
            options: Of the job; priority is on Django's scale, not the broker's.

        Raises:
            InvalidArgument: args is no list or tuple, or kwargs no dict; or as delay().
            InvalidOption: A value is out of its range, or there is no such option.
            TypeError: Both countdown and eta.
        """
        if countdown is not None and eta is not None:
            raise TypeError("apply_async takes countdown or eta, not both")
        kwargs = {} if kwargs is None else kwargs
        check_kinds(self.name, args, kwargs)
        enqueuer = self.using(run_after=countdown if eta is None else eta, **options)
        return enqueuer._delay(args, kwargs)


class AsyncTask(Task[P, R]):
    """A task that was declared with async def: a plain call returns its coroutine."""

    def __init__(
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        *,
        name: str,
        aliases: Sequence[str],
        options: TaskOptions,
    ) -> None:
        super().__init__(function, name=name, aliases=aliases, options=options)
        # So that asgiref and inspect know what a call returns.
        markcoroutinefunction(self)

    def __call__(  # type: ignore[override]  # R is the result, here as in delay().
        self, /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Return the coroutine that runs the task here; no job, no retry."""
        coroutine: Coroutine[Any, Any, R]
        coroutine = self.run(inline_context(self.name), args, kwargs)
        return coroutine
