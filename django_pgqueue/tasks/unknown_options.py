"""
Unknown options: what to write here, in the words that somebody brought along.

Most of them are Celery's, and mean something that has another name here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from django_pgqueue.exceptions import PgQueueError, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")

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


def explains_unknown(
    where: str, error: type[PgQueueError]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """
    Let a function refuse options that it does not have with the way out.

    Args:
        where: What users call it: "@task" or "using()".
        error: What is raised, in place of Python's TypeError.
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters.values()
        known = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
        others = {each.name for each in parameters} - known

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            unknown = kwargs.keys() - known - others
            if unknown:
                told = [_about(where, name, sorted(known)) for name in sorted(unknown)]
                raise error(" ".join(told))
            return function(*args, **kwargs)

        return checked

    return wrap


def _about(where: str, name: str, known: list[str]) -> str:
    if name in CELERY:
        return f"{where} has no {name}, which is Celery's word. Write {CELERY[name]}."
    near = did_you_mean(name, known)
    return f"{where} has no option {name}.{near}"
