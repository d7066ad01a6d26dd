"""Pausing: pgqueue pause and resume of queues and tasks, and of what has a list."""

from __future__ import annotations

from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.management.cli.acting import operator_name, suggest
from django_pgqueue.management.cli.output import Output, Subcommand
from django_pgqueue.management.cli.rows import Filters
from django_pgqueue.management.cli.text import by_whom
from django_pgqueue.management.cli.words import (
    add_force,
    add_reason,
    add_until,
    check_is_declared,
    check_is_known,
    plain_text,
    queue_name,
)
from django_pgqueue.models import Lane, Queue
from django_pgqueue.operators.human import duration, shown
from django_pgqueue.operators.pausable import QUEUE, TASK, Pausable


def pause(
    kind: Pausable, row: Any, name: str, options: dict[str, Any], out: Output
) -> int:
    """Pause *row*, which is called *name*; say who has, where that is somebody else."""
    why = {"by": operator_name(), "reason": options["reason"]}
    if kind.can_end:
        why["until"] = options["until"]
    was_new = kind.begin.run(row, **why)
    if kind in (QUEUE, TASK):  # It need not have been there.
        row.refresh_from_db(using=get_settings().database)
    # A worker reads the list of queues as often as it polls.
    poll = duration(get_settings().poll_interval_seconds)
    called = f"{kind.kind.capitalize()} {shown(name)}"
    return out.answer(
        {kind.kind: name, "paused": was_new},
        was_new,
        f"{called} {kind.begin.line.format(poll=poll)}",
        f"{called} was paused already{by_whom(row)}; that stays.",
    )


def resume(kind: Pausable, row: Any, name: str, out: Output) -> int:
    """End the pause of *row*, which is called *name*."""
    was_paused = kind.end.run(row)
    called = f"{kind.kind.capitalize()} {shown(name)}"
    return out.answer(
        {kind.kind: name, "resumed": was_paused},
        was_paused,
        f"{called} {kind.end.line}",
        f"{called} was not paused.",
    )


def _add_what(parser: Any) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("queue", nargs="?", type=queue_name, metavar="QUEUE")
    what.add_argument(
        "--task",
        type=plain_text,
        metavar="NAME",
        help="All jobs of this task, in place of a queue's.",
    )


def _add_pause(parser: Any) -> None:
    _add_what(parser)
    add_reason(parser, "queue or the task")
    add_until(parser)
    add_force(parser)


def _pause(options: dict[str, Any], out: Output) -> int:
    name, task = options["queue"], options["task"]
    if task is not None:
        check_is_declared(task)
        return pause(TASK, Lane(name=task), task, options, out)
    check_is_known(name, options)
    return pause(QUEUE, Queue(name=name), name, options, out)


def _resume(options: dict[str, Any], out: Output) -> int:
    name, task = options["queue"], options["task"]
    if task is not None:
        status = resume(TASK, Lane(name=task), task, out)
    else:
        status = resume(QUEUE, Queue(name=name), name, out)
    if status and not out.as_json:
        suggest(Filters(queue=name, task=task), out)
    return status


PAUSE = Subcommand(
    "Stop claims from a queue, or of a task; what runs, runs on, and enqueues go on.",
    _add_pause,
    _pause,
)
RESUME = Subcommand(
    "End the pause of a queue or of a task, or close its circuit breaker.",
    _add_what,
    _resume,
)
