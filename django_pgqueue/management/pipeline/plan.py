"""A pipeline job with what this project's settings say: session, database, secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from django.utils.crypto import salted_hmac

from django_pgqueue.bounds import QUEUE_DEFAULT
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import (
    InvalidArgument,
    SparkOptionError,
    UnknownTask,
    did_you_mean,
)
from django_pgqueue.management.spark_session import dsn_of, redaction_of, spark_session
from django_pgqueue.spark.job import find_job
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.run import Plan
from django_pgqueue.tasks.registry import find_task, known_names

# Jobs that go by PGQUEUE["EXPORT"].
OF_EXPORT = ("export", "compact", "verify")


def plan_of(
    name: str,
    options: Mapping[str, str],
    *,
    by: str = "",
    queue_job: int | None = None,
    read_options: Mapping[str, str] | None = None,
) -> Plan:
    """
    Return what is to be run.

    Raises:
        SparkOptionError: No such job, or an option of it is wrong.
    """
    settings = get_settings()
    job = find_job(name)
    return Plan(
        job=job,
        options=job.read_options({**_from_settings(name, options), **options}),
        dsn=dsn_of(settings.database, writes=True),
        sessions=lambda: spark_session(f"pgqueue {name}"),
        by=by,
        queue_job=queue_job,
        read_options=read_options or {},
        patterns=settings.redact,
        known_task=known_task,
        redaction=redaction_of(settings) or Redaction(),
        sign=_signed,
    )


def _signed(text: str) -> str:
    return salted_hmac("django_pgqueue.erase", text, algorithm="sha256").hexdigest()


def _from_settings(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that settings say, where a call says nothing else."""
    export = get_settings().export
    if name not in OF_EXPORT or export is None or "path" in options:
        return {}
    return {"path": export.path}


def this_account() -> str:
    """Return who runs this process, as far as the host knows."""
    import getpass

    try:
        return getpass.getuser()[:100]
    except (KeyError, OSError):  # A container's user has no name.
        return f"user {os.getuid()}"


# Known task -------------------------------------------------------------------------


def known_task(
    name: str, queue: str | None, arguments: Sequence[str] | None
) -> dict[str, str]:
    """
    Return what delay() would store, as options of format("pgqueue").

    Args:
        name: Of the task.
        queue: Where the jobs go; None: where the task says.
        arguments: The names of keyword arguments; None: they are not known.

    Raises:
        SparkOptionError: No such task is declared, or it does not take these.
    """
    try:
        task = find_task(name)
    except UnknownTask as error:
        raise SparkOptionError(f"{error}{did_you_mean(name, known_names())}") from None
    if arguments is not None:
        try:
            task.bind((), dict.fromkeys(arguments))
        except InvalidArgument as error:
            raise SparkOptionError(
                f"The columns do not fit the task: {error} They are "
                f"{', '.join(arguments) or 'none'}."
            ) from None
    settings = get_settings()
    queue = queue or task.options.queue or QUEUE_DEFAULT
    resolved = task.resolve(queue, settings)
    said = {
        "queue": queue,
        "priority": str(resolved.priority),
        "maxAttempts": str(resolved.retry.max_attempts),
        "payloadBytesMax": str(settings.payload_bytes_max),
    }
    if any("," in tag for tag in task.options.tags):
        raise SparkOptionError(
            f"A tag of {name} has a comma, with which the option tags divides tags: "
            f"{', '.join(map(repr, task.options.tags))}. Declare it without."
        )
    if task.options.tags:
        said["tags"] = ",".join(task.options.tags)
    return said
