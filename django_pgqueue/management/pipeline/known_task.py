"""Known task: what a declared task says of its jobs, for rows that Spark writes."""

from __future__ import annotations

from collections.abc import Sequence

from django_pgqueue.bounds import QUEUE_DEFAULT
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import (
    InvalidArgument,
    SparkOptionError,
    UnknownTask,
    did_you_mean,
)
from django_pgqueue.tasks.registry import find_task, known_names


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
