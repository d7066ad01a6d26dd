"""
Table: every option of a task, declared once.

A row has the name, the type, what it means, how it is checked, what holds where nobody
says it, and whether settings may say it. The class that it stands in says who may:
@task, @subscribe, using(), apply_async(), the backend of django.tasks and the settings
have their types, signatures, docstrings and errors from these classes.
"""

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Any, Literal, TypedDict, TypeVar, cast

from django_pgqueue.bounds import PRIORITY_DEFAULT
from django_pgqueue.exceptions import PgQueueError, did_you_mean
from django_pgqueue.options.breaker import Breaker, check_breaker
from django_pgqueue.options.checks import (
    AckPolicy,
    Middleware,
    Settle,
    check_ack_policy,
    check_bool,
    check_check_types,
    check_middleware,
    check_priority,
    check_queue,
    check_retries,
    check_settle,
    check_timeout,
)
from django_pgqueue.options.durations import Duration
from django_pgqueue.options.lanes import (
    GroupKey,
    Key,
    Lane,
    Limit,
    Rate,
    check_fair_by,
    check_group,
    check_limit,
    check_rate,
)
from django_pgqueue.options.marks import check_tags
from django_pgqueue.options.retry import Retry

# Without postponed annotations: the rows are read here.


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Option:
    """A row of the table, beside its name."""

    doc: str
    # Returns the value as it is kept; raises InvalidOption or DeclarationError.
    check: Callable[[Any], Any] = _as_it_is
    # Where nobody says it; None: nothing.
    default: Any = None
    # Whether QUEUES and DEFAULTS say it, too, for tasks that do not.
    in_settings: bool = False
    type: Any = None


class PlaceKeywords(TypedDict, total=False):
    """What every declaration and every call may say."""

    queue: Annotated[
        str | None, Option('Where its jobs go, a queue name; "default".', check_queue)
    ]
    priority: Annotated[
        int | None,
        Option(
            f"-100 to 100, higher first; {PRIORITY_DEFAULT}.",
            check_priority,
            PRIORITY_DEFAULT,
            in_settings=True,
        ),
    ]
    tags: Annotated[
        Collection[str] | None,
        Option(
            "Up to 20 texts that a job carries, to be found by. Those of a call or of "
            "a subscription are added to the task's.",
            check_tags,
        ),
    ]


class JobKeywords(PlaceKeywords, total=False):
    """Likewise, but for Celery's words."""

    retries: Annotated[
        Retry | int | None,
        Option(
            "How many retries follow a failed first attempt, or a Retry; by default "
            "four, with exponential back-off from 5 s to 1 h and full jitter. Of a "
            "call or of a subscription the number counts, and the back-off stays the "
            "task's.",
            check_retries,
            Retry(),
            in_settings=True,
        ),
    ]


class DeclareKeywords(JobKeywords, total=False):
    """What every declaration of a function may say."""

    timeout: Annotated[
        Duration | None,
        Option(
            "How long an attempt may run; then TaskTimeout is raised inside it.",
            check_timeout,
            in_settings=True,
        ),
    ]
    settle: Annotated[
        Settle | None,
        Option(
            '"immediate": the thread waits until its ack is committed, so a crash '
            'repeats at most the one job per thread. "batched": it goes on to its next '
            "job meanwhile; for tasks that may well repeat.",
            check_settle,
            "immediate",
            in_settings=True,
        ),
    ]
    ack_policy: Annotated[
        AckPolicy | None,
        Option(
            'When a job counts as done. "on_success"; "first": before it runs, so at '
            'most once; "reject_on_error": any failure is a dead letter at once; '
            '"manual": the task says through its context.',
            check_ack_policy,
            "on_success",
            in_settings=True,
        ),
    ]
    archive: Annotated[
        bool | None,
        Option(
            "False: a job that succeeded leaves no row and no result behind, which "
            "spares the database a third of its work. Failures are kept as ever.",
            functools.partial(check_bool, "archive"),
            True,
            in_settings=True,
        ),
    ]
    check_types: Annotated[
        bool | None,
        Option(
            "True: arguments must be what the function's type hints say, when a job is "
            "enqueued and again before it runs; pydantic looks, of the extra "
            "``schema``.",
            check_check_types,
            False,
            in_settings=True,
        ),
    ]
    middleware: Annotated[
        Sequence[Middleware | str],
        Option(
            "Functions of (context, call_next) around every job, the first one "
            "outermost, or their import paths.",
            check_middleware,
            (),
            in_settings=True,
        ),
    ]
    name: Annotated[str | None, Option("The name stored in rows; ``module.qualname``.")]
    aliases: Annotated[
        Sequence[str],
        Option("Names of earlier days, so that old rows still run.", default=()),
    ]


class ContextKeywords(TypedDict, total=False):
    """What changes the type of the function."""

    takes_context: Annotated[
        bool,
        Option("Whether the function takes a JobContext first.", bool, default=False),
    ]


class OneByOneKeywords(DeclareKeywords, total=False):
    """What may be said of a task whose calls do not run together."""

    atomic: Annotated[
        bool,
        Option(
            "The ack is part of one transaction with what the task writes into the "
            "database of the jobs, so that those writes happen exactly once. Not for "
            "async def, and with no other settle or ack_policy.",
            functools.partial(check_bool, "atomic"),
            default=False,
        ),
    ]


class LaneKeywords(TypedDict, total=False):
    """How many jobs of a key run at a time, or in a time, on all workers together."""

    group: Annotated[
        GroupKey | Literal[False] | None,
        Option(
            "A parameter, a list of them, or a function of the arguments: jobs that "
            "agree in it run one at a time, in the order in which they were stored. "
            "True: all of the task. Or a Group, which says what a failure does.",
            check_group,
        ),
    ]
    limit: Annotated[
        Limit | Literal[False] | None,
        Option(
            "A Limit: at most so many of the task, or of each key, at a time.",
            check_limit,
        ),
    ]
    rate: Annotated[
        Rate | Literal[False] | None,
        Option(
            "A Rate: no more than so many of the task, or of each key, in a time. With "
            "a group or a limit of the same key, both hold.",
            check_rate,
        ),
    ]
    fair_by: Annotated[
        Key | Literal[False] | None,
        Option(
            "A parameter, a list of them, or a function of the arguments: jobs of each "
            "value start in turn, however many of another wait. With no group, limit "
            "or rate.",
            check_fair_by,
        ),
    ]


class BreakerKeywords(TypedDict, total=False):
    """What becomes of a task whose attempts fail."""

    breaker: Annotated[
        Breaker | None,
        Option(
            "A Breaker: while most attempts fail, no job of the task is begun but for "
            'one now and then, which tries. Not with ack_policy "first" or '
            '"manual".',
            check_breaker,
        ),
    ]


class RuleKeywords(TypedDict, total=False):
    """What becomes of a second call; with unique, they make one rule."""

    by: Annotated[
        str | Collection[str] | None,
        Option(
            "Of debounce and throttle: the parameters that make the key, as in Unique; "
            "by default all arguments."
        ),
    ]
    debounce: Annotated[
        Duration | None,
        Option(
            "A duration: the job runs that long after the last call, with that call's "
            "arguments."
        ),
    ]
    max_wait: Annotated[
        Duration | None,
        Option(
            "Of debounce: the longest that calls can put the job off, from the first "
            "one on; a duration."
        ),
    ]
    throttle: Annotated[
        str | None,
        Option(
            '"N/period", such as "10/15m": further jobs are not stored. A period '
            "begins with its first job."
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a task said, checked; None: say the queue, the settings, the default."""

    queue: str | None = None
    priority: int | None = None
    tags: tuple[str, ...] = ()
    retries: Retry | None = None
    timeout: timedelta | None = None
    settle: Settle | None = None
    ack_policy: AckPolicy | None = None
    archive: bool | None = None
    check_types: bool | None = None
    middleware: tuple[Middleware, ...] = ()
    atomic: bool = False
    takes_context: bool = False
    # Where its jobs wait for one another.
    lane: Lane | None = None
    # When it is paused because its attempts fail.
    breaker: Breaker | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What holds for a job, once every layer has been asked."""

    priority: int
    retry: Retry
    timeout: timedelta | None
    settle: Settle
    ack_policy: AckPolicy
    archive: bool
    check_types: bool
    middleware: tuple[Middleware, ...] = ()


def options_of(*tables: type) -> Mapping[str, Option]:
    """Return the rows of these classes, by name."""
    rows = {}
    for table in tables:
        for name, row in table.__annotations__.items():
            (option,) = row.__metadata__
            rows[name] = replace(option, type=row.__origin__)
    return rows


# What QUEUES and DEFAULTS in the settings may say, too.
OF_SETTINGS = {
    name: option
    for name, option in options_of(DeclareKeywords).items()
    if option.in_settings
}


# Takes --------------------------------------------------------------------------------
# Takes: a function has rows of the table as its keywords, and refuses all others.
#
# It says what to write in their place, also to somebody who brought along Celery's
# words.


F = TypeVar("F", bound=Callable[..., Any])

# Of a docstring: the argument that stands for all options.
ALL_OPTIONS = re.compile(r"^( +)options: .*\n(?:\1 +.*\n)*", re.MULTILINE)

TIMEOUT = "timeout=…, which raises TaskTimeout, and 15 s later gives the task up"
RUN_AFTER = "run_after=…, a datetime or a duration"

# Of a task and of a call, in the order of Celery's documentation.
CELERY: Mapping[str, str] = {
    "bind": "takes_context=True: the function takes a JobContext first",
    "max_retries": "retries=…, a number or a Retry",
    "default_retry_delay": "retries=Retry(base=…)",
    "autoretry_for": "nothing, every exception is retried; or retries=Retry(on=(…,))",
    "throws": "retries=Retry(never=(…,))",
    "dont_autoretry_for": "retries=Retry(never=(…,))",
    "retry_kwargs": "retries=…, a number or a Retry",
    "retry_backoff": "retries=Retry(backoff=…, base=…)",
    "retry_backoff_max": "retries=Retry(cap=…)",
    "retry_jitter": "retries=Retry(jitter=…)",
    "retry": "retries=…, a number or a Retry",
    "retry_policy": "retries=…, a number or a Retry",
    "acks_late": "nothing: a job is done when it has succeeded; ack_policy='first' is "
    "the other way",
    "acks_on_failure_or_timeout": "ack_policy=…",
    "reject_on_worker_lost": "nothing: a job whose worker died runs again",
    "ignore_result": "archive=False: a job that succeeded leaves nothing behind",
    "store_errors_even_if_ignored": "nothing: failures are always kept",
    "time_limit": TIMEOUT,
    "soft_time_limit": TIMEOUT,
    "track_started": "nothing: a job that runs is shown as running",
    "base": "middleware=[…], functions around every job",
    "countdown": RUN_AFTER,
    "eta": RUN_AFTER,
    "delay": RUN_AFTER,
    "routing_key": "queue=…",
    "exchange": "queue=…",
    "task_id": "nothing: the id of a job is made by the database; key=… is your own",
    "serializer": "nothing: arguments are stored as JSON",
    "compression": "nothing: PostgreSQL compresses large rows itself",
    "shadow": "tags=[…]",
}

# What is said in another place.
ELSEWHERE: Mapping[str, str] = {
    "lease": "PGQUEUE['LEASE_SECONDS'] is that of every job, and is renewed while one "
    "runs. How long it may run at most says @task(timeout=…)",
    "rate": "a task has one, @task(rate=…), or a queue of tasks, PGQUEUE['QUEUES']",
}


def takes(
    where: str, error: type[PgQueueError], options: Mapping[str, Option]
) -> Callable[[F], F]:
    """
    Let a function take options of the table, and refuse others with the way out.

    Its signature has them in place of ``**options``, and its docstring in place of the
    line about these; without ``**options``, it takes its own keywords alone.

    Args:
        where: What users call it: "@task" or "using()".
        error: What is raised, in place of Python's TypeError.
        options: The rows, by name.
    """

    def wrap(function: F) -> F:
        signature = inspect.signature(function)
        parameters = signature.parameters.values()
        own = [each for each in parameters if each.kind is not each.VAR_KEYWORD]
        named = {each.name for each in own if each.kind is not each.POSITIONAL_ONLY}
        keywords = {each.name for each in own if each.kind is each.KEYWORD_ONLY}

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            unknown = kwargs.keys() - options.keys() - named
            if unknown:
                known = sorted(keywords | options.keys())
                celery = CELERY if options else {}
                told = [_about(where, name, known, celery) for name in sorted(unknown)]
                raise error(" ".join(told))
            return function(*args, **kwargs)

        rows = [_parameter(*row) for row in options.items()]
        vars(checked)["__signature__"] = signature.replace(parameters=[*own, *rows])
        checked.__doc__ = _documented(function.__doc__ or "", options)
        return cast("F", checked)

    return wrap


def _parameter(name: str, option: Option) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        # Where settings speak, too, None asks them.
        default=None if option.in_settings else option.default,
        annotation=option.type,
    )


def _documented(text: str, options: Mapping[str, Option]) -> str:
    """Return a docstring with a line of each option in place of that of all."""

    def lines(match: re.Match[str]) -> str:
        wrap = textwrap.TextWrapper(
            width=88, initial_indent=match[1], subsequent_indent=f"{match[1]}    "
        )
        return "".join(
            f"{wrap.fill(f'{name}: {option.doc}')}\n"
            for name, option in options.items()
        )

    return ALL_OPTIONS.sub(lines, text)


def _about(where: str, name: str, known: list[str], celery: Mapping[str, str]) -> str:
    if name in celery:
        return f"{where} has no {name}, which is Celery's word. Write {celery[name]}."
    if name in ELSEWHERE:
        return f"{where} has no option {name}: {ELSEWHERE[name]}."
    near = did_you_mean(name, known)
    return f"{where} has no option {name}.{near}"
