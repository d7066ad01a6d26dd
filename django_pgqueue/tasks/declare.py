"""Declare: the decorator @task, and what it refuses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import (
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from asgiref.sync import iscoroutinefunction

from django_pgqueue.bounds import TASK_NAME_MAX
from django_pgqueue.conf import Duration, as_timedelta
from django_pgqueue.exceptions import DeclarationError
from django_pgqueue.tasks.accumulate import (
    Accumulate,
    check_accumulate,
    check_takes_calls,
)
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.middleware import check_call
from django_pgqueue.tasks.options import (
    ONE_BY_ONE,
    AckPolicy,
    Middleware,
    Settle,
    TaskOptions,
    as_middleware,
    check_ack_policy,
    check_archive,
    check_fit,
    check_priority,
    check_queue,
    check_settle,
    check_tags,
)
from django_pgqueue.tasks.retry import Retry, as_retry
from django_pgqueue.tasks.shown import shown
from django_pgqueue.tasks.task import AsyncTask, Task
from django_pgqueue.tasks.unique import Unique, as_rule
from django_pgqueue.tasks.unknown_options import explains_unknown

P = ParamSpec("P")
R = TypeVar("R")


class TaskKeywords(TypedDict, total=False):
    """What @task takes besides takes_context, for type checkers."""

    queue: str | None
    priority: int | None
    retries: Retry | int | None
    timeout: Duration | None
    settle: Settle | None
    ack_policy: AckPolicy | None
    archive: bool | None
    atomic: bool
    middleware: Sequence[Middleware | str]
    tags: Collection[str]
    unique: Unique | None
    by: str | Collection[str] | None
    debounce: Duration | None
    max_wait: Duration | None
    throttle: str | None
    accumulate: None
    name: str | None
    aliases: Sequence[str]


class CallsKeywords(TypedDict, total=False):
    """What @task takes besides of a task with accumulate."""

    takes_context: bool
    queue: str | None
    priority: int | None
    retries: Retry | int | None
    timeout: Duration | None
    settle: Settle | None
    ack_policy: AckPolicy | None
    archive: bool | None
    middleware: Sequence[Middleware | str]
    tags: Collection[str]
    name: str | None
    aliases: Sequence[str]


# The options of a task that was told nothing.
UNSAID: Mapping[str, Any] = {
    "queue": None,
    "priority": None,
    "retries": None,
    "timeout": None,
    "settle": None,
    "ack_policy": None,
    "archive": None,
    "atomic": False,
    "middleware": (),
    "tags": (),
    "unique": None,
    "by": None,
    "debounce": None,
    "max_wait": None,
    "throttle": None,
    "accumulate": None,
}

# Those that together make the rule for a second call.
RULE = ("unique", "by", "debounce", "max_wait", "throttle")


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
    *, takes_context: Literal[True], **options: Unpack[TaskKeywords]
) -> DeclaresWithContext: ...
@overload
def task(
    *, takes_context: Literal[False] = False, **options: Unpack[TaskKeywords]
) -> Declares: ...
@explains_unknown("@task", DeclarationError)
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    takes_context: bool = False,
    queue: str | None = None,
    priority: int | None = None,
    retries: Retry | int | None = None,
    timeout: Duration | None = None,
    settle: Settle | None = None,
    ack_policy: AckPolicy | None = None,
    archive: bool | None = None,
    atomic: bool = False,
    middleware: Sequence[Middleware | str] = (),
    tags: Collection[str] = (),
    unique: Unique | None = None,
    by: str | Collection[str] | None = None,
    debounce: Duration | None = None,
    max_wait: Duration | None = None,
    throttle: str | None = None,
    accumulate: Accumulate | None = None,
    name: str | None = None,
    aliases: Sequence[str] = (),
) -> Any:
    """
    Declare a function as a task.

        @task
        def ping() -> None: ...

        @task(queue="mail", retries=5, timeout="60s")
        async def send_receipt(order_id: int) -> None: ...

    Args:
        function: The function, when used bare: def or async def.
        takes_context: Whether the function takes a JobContext first.
        queue: Where its jobs go; "default".
        priority: -100 to 100, higher first; 0.
        retries: How many retries follow a failed first attempt, or a Retry; by
            default four, with exponential back-off from 5 s to 1 h and full jitter.
        timeout: How long an attempt may run; then TaskTimeout is raised inside it.
        settle: "immediate": the thread waits until its ack is committed, so a crash
            repeats at most the one job per thread. "batched": it goes on to its next
            job meanwhile; for tasks that may well repeat.
        ack_policy: When a job counts as done. "on_success"; "first": before it runs,
            so at most once; "reject_on_error": any failure is a dead letter at once;
            "manual": the task says through its context.
        archive: False: a job that succeeded leaves no row and no result behind, which
            spares the database a third of its work. Failures are kept as ever.
        atomic: The ack is part of one transaction with what the task writes into the
            database of the jobs, so that those writes happen exactly once. Not for
            async def, and with no other settle or ack_policy.
        middleware: Functions of (context, call_next) around every job, the first one
            outermost, or their import paths.
        tags: Up to 20 texts that every job carries, to be found by.
        unique: At most one live job for each key, and what a second call does.
        debounce: A duration: the job runs that long after the last call, with that
            call's arguments.
        max_wait: Of debounce: the longest that calls can put the job off, a duration.
        throttle: "N/period", such as "10/15m": further jobs are not stored.
        by: Of debounce and throttle: the parameters that make the key, as in Unique;
            by default all arguments.
        accumulate: Many calls, one run: the function takes the list of its calls. Not
            with atomic, nor with ack_policy "first" or "manual".
        name: The name stored in rows; ``module.qualname``.
        aliases: Names of earlier days, so that old rows still run.

    Raises:
        DeclarationError: Not a function at module level, a generator, a name that is
            taken, an option that there is not or out of its range, or two that
            contradict each other.
    """

    options = {
        "queue": queue,
        "priority": priority,
        "retries": retries,
        "timeout": timeout,
        "settle": settle,
        "ack_policy": ack_policy,
        "archive": archive,
        "atomic": atomic,
        "middleware": middleware,
        "tags": tags,
        "unique": unique,
        "by": by,
        "debounce": debounce,
        "max_wait": max_wait,
        "throttle": throttle,
        "accumulate": accumulate,
    }

    def declare_it(function: Callable[..., Any]) -> Task[Any, Any]:
        return declare_task(
            function,
            options,
            takes_context=bool(takes_context),
            name=name,
            aliases=aliases,
        )

    return declare_it if function is None else declare_it(function)


def declare_task(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    *,
    takes_context: bool = False,
    name: str | None = None,
    aliases: Sequence[str] = (),
    kind: type[Task[Any, Any]] | None = None,
) -> Task[Any, Any]:
    """
    Declare *function* as @task does, with the keywords in *options*.

    Args:
        function: What to call.
        options: Of queue, priority, retries, timeout, settle, ack_policy, archive,
            atomic, middleware, tags, unique, by, debounce, max_wait, throttle,
            accumulate.
        takes_context: As in @task.
        name: As in @task.
        aliases: As in @task.
        kind: The class of the task; by default Task, or AsyncTask for a coroutine.

    Raises:
        DeclarationError: As @task does.
    """
    declared_name = _checked_name(function, name)
    is_async = iscoroutinefunction(function)
    checked = checked_options(options, takes_context=takes_context, is_async=is_async)
    if checked.accumulate is not None:
        check_takes_calls(function, takes_context=takes_context)
    if kind is None:
        kind = AsyncTask if is_async else Task
    return kind(
        function,
        name=declared_name,
        aliases=_checked_aliases(aliases),
        options=checked,
    )


def checked_options(
    said: Mapping[str, Any], *, takes_context: bool = False, is_async: bool = False
) -> TaskOptions:
    """
    Return what a task was told, each option in its range and all of them together.

    Raises:
        DeclarationError: One is out of its range, or two contradict each other.
    """
    said = {**UNSAID, **said}
    options = _checked_options(said, takes_context=takes_context, is_async=is_async)
    _refuse_contradictions(options)
    return options


def _checked_options(
    said: Mapping[str, Any], *, takes_context: bool, is_async: bool
) -> TaskOptions:
    """Return the options, each one in its range."""
    limit: timedelta | None = None
    try:
        if said["timeout"] is not None:
            limit = as_timedelta(said["timeout"], name="timeout", zero=False)
        return TaskOptions(
            queue=_unless_none(check_queue, said["queue"]),
            priority=_unless_none(check_priority, said["priority"]),
            retries=as_retry(said["retries"]),
            timeout=limit,
            settle=_unless_none(check_settle, said["settle"]),
            ack_policy=_unless_none(check_ack_policy, said["ack_policy"]),
            archive=_unless_none(check_archive, said["archive"]),
            middleware=_checked_middleware(said["middleware"], is_async),
            atomic=_checked_flag("atomic", said["atomic"]),
            takes_context=takes_context,
            is_async=is_async,
            tags=check_tags(said["tags"]),
            rule=as_rule(**{name: said[name] for name in RULE}) or None,
            accumulate=check_accumulate(said["accumulate"]),
        )
    except (DeclarationError, ValueError) as error:
        text = str(error).removeprefix("@task: ")
        raise DeclarationError(f"@task: {text}") from None


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
    problem = problem or _problem_of_calls(options)
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
    if options.ack_policy in ONE_BY_ONE:
        return (
            f"accumulate and ack_policy={options.ack_policy!r} contradict each other: "
            f"the calls of a run are settled together, when it has ended"
        )
    return None


def _unless_none(check: Callable[[Any], R], value: Any) -> R | None:
    return None if value is None else check(value)


def _checked_middleware(value: object, is_async: bool) -> tuple[Middleware, ...]:
    if not isinstance(value, (list, tuple)):
        raise DeclarationError(
            f"@task(middleware={shown(value)}): it must be a list of functions, or of "
            f"their import paths."
        )
    middleware = check_fit(as_middleware(value), is_async=is_async)
    for item in middleware:
        check_call(item)
    return middleware


def _checked_flag(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise DeclarationError(
            f"@task({option}={shown(value)}): it must be True or False."
        )
    return value


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
    return name
