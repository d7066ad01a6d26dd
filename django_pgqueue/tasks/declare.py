"""Declare: the decorator @task, and what it refuses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import (
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from asgiref.sync import iscoroutinefunction

from django_pgqueue.bounds import PULL_TASK, TASK_NAME_MAX
from django_pgqueue.exceptions import DeclarationError, shown
from django_pgqueue.options.checks import Middleware
from django_pgqueue.options.lanes import as_lane
from django_pgqueue.options.table import takes
from django_pgqueue.tasks.accumulate import Accumulate, check_takes_calls
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.middleware import check_call
from django_pgqueue.tasks.options import (
    OF_LANE,
    OF_RULE,
    OF_TASK,
    ONE_BY_ONE,
    CallsKeywords,
    TaskKeywords,
    TaskOptions,
    as_middleware,
    check_fit,
    problem_of_lane,
)
from django_pgqueue.tasks.task import AsyncTask, Task
from django_pgqueue.tasks.unique import as_rule

P = ParamSpec("P")
R = TypeVar("R")


class Declares(Protocol):
    """What task(…) returns: a decorator."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class DeclaresWithContext(Protocol):
    """What task(takes_context=True) returns: a decorator."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], R], /
    ) -> Task[P, R]: ...


class DeclaresForCalls(Protocol):
    """What task(accumulate=…) returns: a call of the task takes any arguments."""

    @overload
    def __call__(
        self, function: Callable[..., Coroutine[Any, Any, R]], /
    ) -> AsyncTask[..., R]: ...
    @overload
    def __call__(self, function: Callable[..., R], /) -> Task[..., R]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *, accumulate: Accumulate, **options: Unpack[CallsKeywords]
) -> DeclaresForCalls: ...
@overload
def task(
    *,
    takes_context: Literal[True],
    accumulate: None = None,
    **options: Unpack[TaskKeywords],
) -> DeclaresWithContext: ...
@overload
def task(
    *,
    takes_context: Literal[False] = False,
    accumulate: None = None,
    **options: Unpack[TaskKeywords],
) -> Declares: ...
@takes("@task", DeclarationError, OF_TASK)
def task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """
    Declare a function as a task.

        @task
        def ping() -> None: ...

        @task(queue="mail", retries=5, timeout="60s")
        async def send_receipt(order_id: int) -> None: ...

    Args:
        function: The function, when used bare: def or async def.
        options: Those of the table; help() and the reference tell each.

    Raises:
        DeclarationError: Not a function at module level, a generator, a name that is
            taken, an option that there is not or out of its range, or two that
            contradict each other.
    """

    def declare_it(function: Callable[..., Any]) -> Task[Any, Any]:
        return declare_task(function, options)

    return declare_it if function is None else declare_it(function)


def declare_task(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    *,
    kind: type[Task[Any, Any]] | None = None,
) -> Task[Any, Any]:
    """
    Declare *function* as @task does, with the keywords in *options*.

    Args:
        function: What to call.
        options: Those of @task; None: not said.
        kind: The class of the task; by default Task, or AsyncTask for a coroutine.

    Raises:
        DeclarationError: As @task does.
    """
    own = {option: value for option, value in options.items() if value is not None}
    name = _checked_name(function, own.pop("name", None))
    aliases = _checked_aliases(own.pop("aliases", ()))
    is_async = iscoroutinefunction(function)
    checked = checked_options(own, is_async=is_async)
    if checked.accumulate is not None:
        check_takes_calls(function, takes_context=checked.takes_context)
    if kind is None:
        kind = AsyncTask if is_async else Task
    return kind(function, name=name, aliases=aliases, options=checked)


def checked_options(
    options: Mapping[str, Any], *, is_async: bool = False
) -> TaskOptions:
    """
    Return what a task was told, each option in its range and all of them together.

    Args:
        options: Options of @task but for name and aliases; None: not said.
        is_async: Whether the function is a coroutine function.

    Raises:
        DeclarationError: One is out of its range, or two contradict each other.
    """
    given = {name: value for name, value in options.items() if value is not None}
    try:
        kept = {name: OF_TASK[name].check(value) for name, value in given.items()}
        rule = as_rule(**{name: kept.pop(name) for name in OF_RULE if name in kept})
        lane = as_lane(*[kept.pop(name, None) for name in OF_LANE])
        kept["middleware"] = _fitting(kept.get("middleware", ()), is_async)
    except (DeclarationError, ValueError) as error:
        text = str(error).removeprefix("@task: ")
        raise DeclarationError(f"@task: {text}") from None
    checked = TaskOptions(
        **kept, is_async=is_async, rule=rule or None, lane=lane or None
    )
    _refuse_contradictions(checked)
    return checked


def _refuse_contradictions(options: TaskOptions) -> None:
    """Raise DeclarationError for two options that cannot both hold."""
    policy = options.ack_policy or "on_success"
    problem = None
    if options.atomic and options.is_async:
        problem = (
            "atomic=True is for plain functions: Django's transactions do not reach "
            "into async code"
        )
    elif options.atomic and options.settle == "batched":
        problem = (
            "atomic=True and settle='batched' contradict each other: the ack of an "
            "atomic task is written in its own transaction"
        )
    elif options.atomic and policy != "on_success":
        problem = (
            f"atomic=True and ack_policy={policy!r} contradict each other: the ack of "
            f"an atomic task is written when it returns"
        )
    elif policy == "manual" and not options.takes_context:
        problem = (
            "ack_policy='manual' needs takes_context=True: the task says what follows "
            "through its context"
        )
    elif policy in ("first", "manual") and options.settle == "batched":
        problem = (
            f"ack_policy={policy!r} and settle='batched' contradict each other: the "
            f"ack is written by itself, before the task goes on"
        )
    elif policy == "first" and options.archive is False:
        problem = (
            "ack_policy='first' and archive=False contradict each other: what goes "
            "wrong after the ack is noted in the archived row"
        )
    elif (
        policy in ("first", "reject_on_error")
        and options.retries is not None
        and options.retries.max_attempts > 1
    ):
        problem = (
            f"ack_policy={policy!r} and retries contradict each other: a failure is "
            f"never retried"
        )
    elif policy in ONE_BY_ONE and options.breaker is not None:
        problem = (
            f"ack_policy={policy!r} and breaker contradict each other: a job that is "
            f"acked before its end does not say how it ended"
        )
    problem = problem or _problem_of_calls(options)
    if options.lane is not None and problem is None:
        accumulates = options.accumulate is not None
        problem = problem_of_lane(
            options.lane, has_rule=bool(options.rule), accumulates=accumulates
        )
    if problem:
        raise DeclarationError(f"@task: {problem}.")


def _problem_of_calls(options: TaskOptions) -> str | None:
    """Say what an option of a task with accumulate contradicts; None: nothing."""
    if options.accumulate is None:
        return None
    if options.rule is not None:
        return (
            "accumulate and unique, debounce or throttle contradict each other: each "
            "call of the one is a job, and the others leave some out"
        )
    if options.atomic:
        return (
            "accumulate and atomic=True contradict each other: one call whose lease is "
            "lost would roll back what the run has done for all others"
        )
    if options.check_types:
        return (
            "accumulate and check_types contradict each other: a call takes any "
            "arguments, and the function the list of its calls"
        )
    if options.ack_policy in ONE_BY_ONE:
        return (
            f"accumulate and ack_policy={options.ack_policy!r} contradict each other: "
            f"the calls of a run are settled together, when it has ended"
        )
    return None


def _fitting(
    value: Sequence[Middleware | str], is_async: bool
) -> tuple[Middleware, ...]:
    middleware = check_fit(as_middleware(value), is_async=is_async)
    for item in middleware:
        check_call(item)
    return middleware


def _checked_name(function: object, name: str | None) -> str:
    if not inspect.isfunction(function):
        raise DeclarationError(
            f"@task takes a function defined with def or async def, not "
            f"{shown(function)}."
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DeclarationError(f"@task: {function.__qualname__} is a generator.")
    owner = function.__qualname__.rpartition(".")[0]
    if owner and not owner.endswith("<locals>"):
        raise DeclarationError(
            f"@task: {function.__qualname__} is a method; declare a function at module "
            f"level, and pass it the primary key."
        )
    if name is None:
        if "<" in function.__qualname__:
            raise DeclarationError(
                f"@task: {function.__qualname__} must be defined at module level, or "
                f"declared with name=…: a worker finds it by its import path."
            )
        name = f"{function.__module__}.{function.__qualname__}"
    return _checked_text("name", name)


def _checked_aliases(aliases: object) -> list[str]:
    if not isinstance(aliases, (list, tuple)):
        raise DeclarationError(f"@task(aliases={shown(aliases)}): it must be a list.")
    return [_checked_text("alias", alias) for alias in aliases]


def _checked_text(what: str, name: object) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= TASK_NAME_MAX:
        raise DeclarationError(
            f"@task: the {what} {shown(name)} must have 1 to {TASK_NAME_MAX} "
            f"characters."
        )
    if not name.isprintable():
        raise DeclarationError(
            f"@task: the {what} {shown(name)} must be printable text."
        )
    if name == PULL_TASK:
        raise DeclarationError(
            f"@task: the {what} {name!r} is that of messages in pull queues; choose "
            f"another."
        )
    return name
