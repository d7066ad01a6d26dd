"""
Takes: a function has rows of the table as its keywords, and refuses all others.

It says what to write in their place, also to somebody who brought along Celery's words.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from django_pgqueue.exceptions import PgQueueError, did_you_mean
from django_pgqueue.options.table import Option

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
