"""pgqueue enqueue: store one job of a declared task."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from django_pgqueue.bounds import PRIORITY_DEFAULT, QUEUE_DEFAULT
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import DuplicateJob, QueueFull
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Output
from django_pgqueue.management.cli.words import (
    add_force,
    check_is_declared,
    check_is_known,
    json_array,
    json_object,
    moment_or_length,
    plain_text,
    priority,
    queue_name,
)
from django_pgqueue.operators.human import shown
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.tasks.task import Task

HELP = "Store one job of a declared task, with every check and option of the task."

# What is said of a call that stored no job, by what became of it.
STANDS_FOR_IT = {
    "skipped": "has the same dedup key; nothing was changed",
    "throttled": "was the last that its period takes; nothing was changed",
    "replaced": "has the same dedup key, and waits; it has these arguments now",
    "rescheduled": "has the same dedup key, and waits; it has this time now",
    "debounced": "has the same dedup key, and waits; it has these arguments now, and "
    "runs later",
}
UNCHANGED = ("skipped", "throttled")


def add_arguments(parser: Any) -> None:
    """Declare the task, its arguments, and what its API says of a call."""
    parser.add_argument("task", type=plain_text, metavar="TASK")
    parser.add_argument(
        "--args",
        dest="job_args",  # Django takes "args" for itself.
        type=json_array,
        default=[],
        metavar="JSON",
        help="Positional arguments: an array, such as '[42]'.",
    )
    parser.add_argument(
        "--kwargs",
        dest="job_kwargs",
        type=json_object,
        default={},
        metavar="JSON",
        help="""Keyword arguments: an object, such as '{"order_id": 42}'.""",
    )
    parser.add_argument(
        "--queue",
        type=queue_name,
        metavar="NAME",
        help="Into this queue (default: that of the task).",
    )
    parser.add_argument(
        "--priority",
        type=priority,
        metavar="N",
        help=f"-100 to 100, higher first (default: that of the task, or "
        f"{PRIORITY_DEFAULT}).",
    )
    parser.add_argument(
        "--run-after",
        type=moment_or_length,
        metavar="TIME",
        help="Not before: 2026-01-31T12:00+01:00, or after so long: 90m, 2h, 1d.",
    )
    parser.add_argument(
        "--key",
        type=plain_text,
        metavar="KEY",
        help="The dedup key, in place of arguments, of a task that has one.",
    )
    parser.add_argument(
        "--tag",
        action="append",
        type=plain_text,
        metavar="TAG",
        help="With this tag besides the task's; may be given again.",
    )
    add_force(parser)


def run(options: dict[str, Any], out: Output) -> int:
    """Store the job; say which one it is."""
    check_is_declared(options["task"])
    task = find_task(options["task"])
    assert isinstance(task, Task)
    args, kwargs = options["job_args"], options["job_kwargs"]
    enqueuer = task.using(
        queue=options["queue"],
        priority=options["priority"],
        run_after=options["run_after"],
        key=options["key"],
        tags=options["tag"],
    )
    try:
        # Once more in delay(): here before the database is asked for the queue.
        task.encode(args, kwargs, get_settings().payload_bytes_max)
        check_is_known(options["queue"], options)
        result = enqueuer.delay(*args, **kwargs)
    except (DuplicateJob, QueueFull) as error:
        raise CommandError(shown(error)) from error
    queue = options["queue"] or task.options.queue or QUEUE_DEFAULT
    if out.as_json:
        out.json(
            {
                "id": result.id,
                "task": task.name,
                "created": result.created,
                "conflict": result.conflict,
            }
        )
    elif result.conflict is None:
        out.line(f"Job {result.id} of {shown(task.name)}, in queue {shown(queue)}.")
    else:
        told = STANDS_FOR_IT[result.conflict]
        out.line(f"No job was stored: job {result.id} of {shown(task.name)} {told}.")
    return EXIT_NOTHING if result.conflict in UNCHANGED else EXIT_DONE
