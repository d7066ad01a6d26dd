"""
Task: a declared function, and every way to enqueue it.

The first hop of a job's life. delay() binds the arguments to the function's signature,
checks them, and stores one job in the caller's transaction: it commits with the data
that it is about, or was never there.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    overload,
)

from django_pgqueue import signals
from django_pgqueue.conf import Duration, Settings, as_timedelta, get_settings
from django_pgqueue.exceptions import (
    DeclarationError,
    InvalidArgument,
    PayloadTooLarge,
    WrongDatabase,
)
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues.enqueue import Placement, enqueue, enqueue_many
from django_pgqueue.tasks import payload
from django_pgqueue.tasks.context import JobContext, inline_context
from django_pgqueue.tasks.options import (
    QUEUE_DEFAULT,
    TASK_NAME_MAX,
    CallOptions,
    ResolvedOptions,
    Settle,
    TaskOptions,
    When,
    check_priority,
    check_queue,
    check_settle,
)
from django_pgqueue.tasks.registry import declare
from django_pgqueue.tasks.result import JobResult
from django_pgqueue.tasks.retry import Retry, as_retry

P = ParamSpec("P")
R = TypeVar("R")

# Queues whose options a task keeps resolved: bounded memory.
QUEUES_REMEMBERED_MAX = 1_000

Item = Mapping[str, Any] | Sequence[Any]


class Enqueuer(Generic[P, R]):
    """A task together with what one call says about its jobs."""

    __slots__ = ("_options", "_task")

    def __init__(self, task: Task[P, R], options: CallOptions) -> None:
        self._task = task
        self._options = options

    def using(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        retries: Retry | int | None = None,
        run_after: When | None = None,
        expires: When | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> Enqueuer[P, R]:
        """
        Return this with other options; what is not given stays.

        Args:
            queue: A queue name.
            priority: -100 to 100, higher first.
            retries: How many retries the job has; the back-off stays the task's.
            run_after: A datetime, or a duration from now on the database's clock.
            expires: Likewise; a job not started by then is archived as expired.
            headers: Merged into those given before; JSON, keys "pgqueue.…" refused.

        Raises:
            InvalidOption: A value is out of its range.
        """
        options = self._options.with_(
            queue=queue,
            priority=priority,
            retries=retries,
            run_after=run_after,
            expires=expires,
            headers=headers,
        )
        return Enqueuer(self._task, options)

    def on_commit(self, *, using: str | None = None) -> Deferred[P, R]:
        """
        Enqueue only after the open transaction has committed.

        For a transaction on another database than the jobs are in. A crash between
        the commit and the enqueue loses the job; inside one database, plain delay()
        cannot.

        Args:
            using: The alias whose commit to wait for; by default the one that has a
                transaction open.
        """
        return Deferred(self, using)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> JobResult[R]:
        """
        Store one job, in the caller's transaction: one query.

        Raises:
            InvalidArgument: The arguments do not fit the function, or cannot travel.
            PayloadTooLarge: They exceed PGQUEUE['PAYLOAD_BYTES_MAX'].
            WrongDatabase: A transaction is open on another alias than the queue's.
        """
        return self._store(*self._checked(args, kwargs))

    enqueue = delay

    def bulk(self, items: Iterable[Item]) -> list[JobResult[R]]:
        """
        Store one job per item: all or nothing, one statement per 5,000.

        Args:
            items: For each job a dict of keyword arguments, or a list or tuple of
                positional ones. Empty: nothing happens.

        Raises:
            InvalidArgument: An item does not fit, before anything is stored; the
                message says which.
        """
        task, settings = self._task, get_settings()
        payloads = [
            task.encode_item(place, item, settings.payload_bytes_max)
            for place, item in enumerate(items)
        ]
        connection = _queue_connection(task.name, settings.database)
        if not payloads:
            return []
        from django.db import transaction

        placement = self._placement()
        with (
            transaction.atomic(using=connection.alias, savepoint=False),
            connection.cursor() as cursor,
        ):
            ids = enqueue_many(cursor, placement, payloads)
            _announce(connection, task, placement, ids)
        return [JobResult(job_id) for job_id in ids]

    def _checked(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Placement, str, str]:
        """Return all that a job's row holds; what is wrong with it is raised."""
        encoded = self._task.encode(args, kwargs, get_settings().payload_bytes_max)
        return self._placement(), *encoded

    def _store(self, placement: Placement, args: str, kwargs: str) -> JobResult[R]:
        connection = _queue_connection(self._task.name, get_settings().database)
        with connection.cursor() as cursor:
            job_id = enqueue(cursor, placement, args=args, kwargs=kwargs)
        _announce(connection, self._task, placement, [job_id])
        return JobResult(job_id)

    def _placement(self) -> Placement:
        said, task, settings = self._options, self._task, get_settings()
        queue = said.queue or task.options.queue or QUEUE_DEFAULT
        resolved = task.resolve(queue, settings)
        return Placement(
            queue=queue,
            task=task.name,
            headers=_headers(task.name, said.headers, settings.payload_bytes_max),
            priority=resolved.priority if said.priority is None else said.priority,
            max_attempts=said.max_attempts or resolved.retry.max_attempts,
            run_at=said.run_at,
            delay=said.delay,
            expire_at=said.expire_at,
            expire_in=said.expire_in,
        )


class Task(Generic[P, R]):
    """
    A declared task. Made by @task; call it to run it inline, delay() to enqueue it.

    Attributes:
        name: What a job's row says: ``module.qualname``, or the given name.
        function: What was decorated.
        aliases: Names of earlier days, so that old rows still run.
        options: What was declared.
    """

    def __init__(
        self,
        function: Callable[..., R],
        *,
        name: str | None,
        aliases: Sequence[str],
        options: TaskOptions,
    ) -> None:
        name = _checked_name(function, name)
        # First: it copies the function's own attributes, whatever they are called.
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name
        self.aliases = tuple(aliases)
        self.options = options
        self._signature = _job_signature(function, options.takes_context)
        self._resolved: dict[str, tuple[Settings, ResolvedOptions]] = {}
        declare(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the task here and now; no job, no retry."""
        return self.run(inline_context(self.name), args, kwargs)

    def resolve(self, queue: str, settings: Settings) -> ResolvedOptions:
        """Return what holds for this task's jobs in *queue*; kept for the next job."""
        kept = self._resolved.get(queue)
        # The same object for as long as the setting does not change.
        if kept is not None and kept[0] is settings:
            return kept[1]
        if len(self._resolved) >= QUEUES_REMEMBERED_MAX:
            self._resolved.clear()
        resolved = self.options.for_queue(queue, settings)
        self._resolved[queue] = (settings, resolved)
        return resolved

    def run(
        self, context: JobContext, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> R:
        """Call the function, with *context* first if it takes one."""
        if self.options.takes_context:
            return self.function(context, *args, **kwargs)
        return self.function(*args, **kwargs)

    def using(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        retries: Retry | int | None = None,
        run_after: When | None = None,
        expires: When | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> Enqueuer[P, R]:
        """Return this task with options for its next jobs; see Enqueuer.using."""
        return self._enqueuer.using(
            queue=queue,
            priority=priority,
            retries=retries,
            run_after=run_after,
            expires=expires,
            headers=headers,
        )

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> JobResult[R]:
        """Store one job, in the caller's transaction; see Enqueuer.delay."""
        return self._enqueuer.delay(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobResult[R]:
        """Store one job: delay() under the name that django.tasks gives it."""
        return self._enqueuer.delay(*args, **kwargs)

    def on_commit(self, *, using: str | None = None) -> Deferred[P, R]:
        """Enqueue after the commit; see Enqueuer.on_commit."""
        return self._enqueuer.on_commit(using=using)

    def bulk(self, items: Iterable[Item]) -> list[JobResult[R]]:
        """Store one job per item, all or nothing; see Enqueuer.bulk."""
        return self._enqueuer.bulk(items)

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        countdown: Duration | None = None,
        eta: When | None = None,
        expires: When | None = None,
        queue: str | None = None,
        priority: int | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> JobResult[R]:
        """
        Store one job, in the words of Celery.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            countdown: A duration from now; with eta, an error.
            eta: A moment.
            expires: A moment or a duration.
            queue: A queue name.
            priority: -100 to 100, higher first (Django's scale, not the broker's).
            headers: A dict that travels with the job.

        Raises:
            TypeError: Both countdown and eta.
        """
        if countdown is not None and eta is not None:
            raise TypeError("apply_async takes countdown or eta, not both")
        enqueuer = self.using(
            queue=queue,
            priority=priority,
            run_after=countdown if eta is None else eta,
            expires=expires,
            headers=headers,
        )
        # Positional and keyword arguments as data: only the run time can check them.
        delay = cast("Callable[..., JobResult[R]]", enqueuer.delay)
        return delay(*args, **(kwargs or {}))

    def encode(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], payload_bytes_max: int
    ) -> tuple[str, str]:
        """
        Return the arguments as JSON text, bound to the signature and checked.

        Raises:
            InvalidArgument: They do not fit the function, or cannot travel.
            PayloadTooLarge: They are larger than payload_bytes_max.
        """
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(
                task=self.name, path="arguments", problem=f"do not fit: {error}"
            ) from None
        return payload.encode(
            self.name, args, kwargs, payload_bytes_max=payload_bytes_max
        )

    def encode_item(
        self, place: int, item: Item, payload_bytes_max: int
    ) -> tuple[str, str]:
        """Return the arguments of one item of bulk() as JSON text; as encode()."""
        try:
            if isinstance(item, Mapping):
                return self.encode((), item, payload_bytes_max)
            if isinstance(item, (list, tuple)):
                return self.encode(item, {}, payload_bytes_max)
        except InvalidArgument as error:
            raise InvalidArgument(
                task=self.name,
                path=f"item {place}",
                problem=str(error).removeprefix(f"{self.name}: "),
            ) from None
        except PayloadTooLarge as error:
            raise PayloadTooLarge(
                task=f"{self.name}: item {place}",
                payload_bytes=error.payload_bytes,
                payload_bytes_max=error.payload_bytes_max,
            ) from None
        raise InvalidArgument(
            task=self.name,
            path=f"item {place}",
            problem=f"is a {type(item).__qualname__}; it must be a dict of keyword "
            f"arguments, or a list or tuple of positional ones",
        )

    @property
    def _enqueuer(self) -> Enqueuer[P, R]:
        return Enqueuer(self, NO_OPTIONS)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class Deferred(Generic[P, R]):
    """What on_commit() returns: it enqueues once a transaction has committed."""

    __slots__ = ("_enqueuer", "_using")

    def __init__(self, enqueuer: Enqueuer[P, R], using: str | None) -> None:
        self._enqueuer = enqueuer
        self._using = using

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """
        Check the arguments now, and store the job after the commit.

        What is stored is what the arguments are now. Returns nothing: there is no job,
        and no id, before the commit.
        """
        from django.db import transaction

        checked = self._enqueuer._checked(args, kwargs)
        alias = self._using or _open_alias() or get_settings().database
        transaction.on_commit(
            functools.partial(self._enqueuer._store, *checked), using=alias
        )

    enqueue = delay


NO_OPTIONS = CallOptions()


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *,
    takes_context: Literal[True],
    queue: str | None = None,
    priority: int | None = None,
    retries: Retry | int | None = None,
    timeout: Duration | None = None,
    settle: Settle | None = None,
    name: str | None = None,
    aliases: Sequence[str] = (),
) -> Callable[[Callable[Concatenate[JobContext, P], R]], Task[P, R]]: ...
@overload
def task(
    *,
    takes_context: Literal[False] = False,
    queue: str | None = None,
    priority: int | None = None,
    retries: Retry | int | None = None,
    timeout: Duration | None = None,
    settle: Settle | None = None,
    name: str | None = None,
    aliases: Sequence[str] = (),
) -> Callable[[Callable[P, R]], Task[P, R]]: ...
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
    name: str | None = None,
    aliases: Sequence[str] = (),
) -> Any:
    """
    Declare a function as a task.

        @task
        def ping() -> None: ...

        @task(queue="mail", retries=5, timeout="60s")
        def send_receipt(order_id: int) -> None: ...

    Args:
        function: The function, when used bare.
        takes_context: Whether the function takes a JobContext first.
        queue: Where its jobs go; "default".
        priority: -100 to 100, higher first; 0.
        retries: How many retries follow a failed first attempt, or a Retry; by
            default four, with exponential back-off from 5 s to 1 h and full jitter.
        timeout: How long an attempt may run; then TaskTimeout is raised inside it.
        settle: "immediate": the thread waits until its ack is committed, so a crash
            repeats at most the one job per thread. "batched": it goes on to its next
            job meanwhile; for tasks that may well repeat.
        name: The name stored in rows; ``module.qualname``.
        aliases: Names of earlier days, so that old rows still run.

    Raises:
        DeclarationError: Not a function at module level, an async function, a name
            that is taken, or an option out of its range.
    """

    def declare_task(function: Callable[..., Any]) -> Task[Any, Any]:
        return Task(
            function,
            name=name,
            aliases=_checked_aliases(aliases),
            options=_checked_options(
                takes_context, queue, priority, retries, timeout, settle
            ),
        )

    return declare_task if function is None else declare_task(function)


def _checked_options(
    takes_context: bool,
    queue: str | None,
    priority: int | None,
    retries: Retry | int | None,
    timeout: Duration | None,
    settle: Settle | None,
) -> TaskOptions:
    limit: timedelta | None = None
    try:
        if timeout is not None:
            limit = as_timedelta(timeout, name="timeout", zero=False)
        return TaskOptions(
            queue=None if queue is None else check_queue(queue),
            priority=None if priority is None else check_priority(priority),
            retries=as_retry(retries),
            timeout=limit,
            settle=None if settle is None else check_settle(settle),
            takes_context=bool(takes_context),
        )
    except ValueError as error:
        raise DeclarationError(f"@task: {error}") from None


def _checked_name(function: object, name: str | None) -> str:
    if not inspect.isfunction(function):
        raise DeclarationError(
            f"@task takes a function defined with def, not {function!r}."
        )
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise DeclarationError(
            f"@task: {function.__qualname__} is async; declare a plain function, and "
            f"call asgiref's async_to_sync in it."
        )
    if inspect.isgeneratorfunction(function):
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


def _checked_aliases(aliases: Sequence[str]) -> list[str]:
    if isinstance(aliases, str):
        raise DeclarationError(f"@task(aliases={aliases!r}): it must be a list.")
    return [_checked_text("alias", alias) for alias in aliases]


def _checked_text(what: str, name: object) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= TASK_NAME_MAX:
        raise DeclarationError(
            f"@task: the {what} {name!r} must have 1 to {TASK_NAME_MAX} characters."
        )
    if not name.isprintable():
        raise DeclarationError(f"@task: the {what} {name!r} must be printable text.")
    return name


def _job_signature(
    function: Callable[..., Any], takes_context: bool
) -> inspect.Signature:
    signature = inspect.signature(function)
    if not takes_context:
        return signature
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise DeclarationError(
            f"@task(takes_context=True): {function.__qualname__} needs a first "
            f"positional parameter for the context."
        )
    return signature.replace(parameters=parameters[1:])


def _headers(task_name: str, headers: Mapping[str, Any], bytes_max: int) -> str:
    if not headers:
        return "{}"
    problem = ""
    try:
        text = payload.encode_value(dict(headers))
    except ValueError as error:
        problem = str(error)
    else:
        size = len(text.encode())
        if size <= bytes_max:
            return text
        problem = (
            f"take {size:,} bytes as JSON; the limit is {bytes_max:,} "
            f"(PGQUEUE['PAYLOAD_BYTES_MAX'])"
        )
    raise InvalidArgument(task=task_name, path="headers", problem=problem)


def _queue_connection(task_name: str, alias: str) -> Any:
    """Return Django's connection for jobs, unless another alias has a transaction."""
    from django.db import connections

    other = _open_alias(besides=alias)
    if other is not None:
        raise WrongDatabase(task=task_name, open_alias=other, queue_alias=alias)
    return connections[alias]


def _open_alias(besides: str | None = None) -> str | None:
    """Return an alias with an open transaction; those of TestCase do not count."""
    from django.db import connections

    for connection in connections.all(initialized_only=True):
        if connection.alias != besides and any(
            not getattr(block, "_from_testcase", False)
            for block in connection.atomic_blocks
        ):
            alias: str = connection.alias
            return alias
    return None


def _announce(
    connection: Any, task: Task[Any, Any], placement: Placement, ids: Sequence[int]
) -> None:
    wake_after_commit(connection, placement.queue)
    if signals.job_enqueued.receivers:
        for job_id in ids:
            signals.job_enqueued.send(
                sender=task,
                job_id=job_id,
                task=placement.task,
                queue=placement.queue,
            )
