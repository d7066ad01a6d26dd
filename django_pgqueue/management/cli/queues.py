"""pgqueue stats, pause, resume and limit: queues, and what has a pause."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any

from django.core.management.base import CommandError

from django_pgqueue.bounds import LANE_BURST_MAX
from django_pgqueue.conf import get_settings
from django_pgqueue.management.cli.acting import operator_name, suggest
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    EXIT_USAGE,
    Output,
    Subcommand,
)
from django_pgqueue.management.cli.words import (
    DEFAULT,
    add_filters,
    add_force,
    add_reason,
    add_until,
    capacity,
    check_is_declared,
    check_is_known,
    plain_text,
    queue_name,
    reading,
    whole_number,
)
from django_pgqueue.models import Lane, Queue
from django_pgqueue.operators.human import age, by_whom, count, duration, share, shown
from django_pgqueue.operators.lanes import queue_taken as taken
from django_pgqueue.operators.lanes import rate
from django_pgqueue.operators.pausable import QUEUE, TASK, Pausable, paused
from django_pgqueue.options.lanes import Rate
from django_pgqueue.pull.queue import known_queue
from django_pgqueue.queues.stats import QueueStats, queue_stats
from django_pgqueue.tasks import database
from django_pgqueue.tasks import operate_queues as operate

# Stats --------------------------------------------------------------------------------


WATCH_SECONDS, WATCH_SECONDS_MAX = 2, 3_600

COUNTS = ("ready", "running", "retrying", "scheduled", "parked", "dead")


def _add_stats(parser: Any) -> None:
    """Declare the queue, and how often."""
    add_filters(parser, "queue")
    parser.add_argument(
        "--watch",
        nargs="?",
        const=WATCH_SECONDS,
        type=whole_number(WATCH_SECONDS_MAX),
        metavar="SECONDS",
        help=f"Print them again every so many seconds (default {WATCH_SECONDS}), "
        f"until Ctrl+C.",
    )


def _stats(options: dict[str, Any], out: Output) -> int:
    """Print one line for each queue; with --watch, until it is interrupted."""
    if options["watch"] is None:
        return _print_stats(options, out)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            _print_stats(options, out)
            out.flush()
            time.sleep(options["watch"])
            if not out.as_json:
                out.line()
    return EXIT_DONE


def _print_stats(options: dict[str, Any], out: Output) -> int:
    name, settings = options["queue"], get_settings()
    with database.cursor() as cursor:
        stats = queue_stats(cursor, depth_limits=settings.depths_max)
    if name is not None:
        stats = [queue for queue in stats if queue.name == name]
    if out.as_json:
        out.json({"queues": list(map(dataclasses.asdict, stats))})
    elif stats:
        limits = settings.queue_limits
        out.table([_stats_row(queue, taken(queue, limits)) for queue in stats])
        if any(queue.is_partial for queue in stats):
            out.line("+ means this many or more: counts stop there.")
    else:
        out.line(
            "There is no queue yet." if name is None else "There is no such queue."
        )
        suggest(out, queue=name)
    return EXIT_DONE if stats or name is None else EXIT_NOTHING


def _stats_row(queue: QueueStats, limit: str) -> dict[str, object]:
    notes = ["pull queue"] if queue.kind == "pull" else []
    if queue.is_paused:
        notes.append(paused(queue))
    if limit:
        notes.append(limit)
    if queue.depth is not None and queue.depth_max is not None:
        notes.append(f"holds {share(queue.depth, queue.depth_max)}")
    if queue.alone:
        notes.append(f"{_count(queue, 'alone')} of the ready wait to run alone")
    return {
        "queue": queue.name,
        **{name: _count(queue, name) for name in COUNTS},
        "oldest": age(queue.oldest_ready_seconds),
        "": "; ".join(notes),
    }


def _count(queue: QueueStats, name: str) -> str:
    return count(getattr(queue, name), is_more=queue.is_more(name))


# Pause and resume ---------------------------------------------------------------------


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
    notice = ""
    if kind is QUEUE:
        # A worker reads the list of queues as often as it polls.
        poll = duration(get_settings().poll_interval_seconds)
        notice = f" Workers notice within {poll}."
    called = f"{kind.kind.capitalize()} {shown(name)}"
    return out.answer(
        {kind.kind: name, "paused": was_new},
        was_new,
        f"{called} {kind.begin.effect}{notice}",
        f"{called} was paused already{by_whom(row)}; that stays.",
    )


def resume(kind: Pausable, row: Any, name: str, out: Output) -> int:
    """End the pause of *row*, which is called *name*."""
    was_paused = kind.end.run(row)
    called = f"{kind.kind.capitalize()} {shown(name)}"
    return out.answer(
        {kind.kind: name, "resumed": was_paused},
        was_paused,
        f"{called} {kind.end.effect}",
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
        suggest(out, queue=name, task=task)
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


# Limit --------------------------------------------------------------------------------


# What was not said stays as it is.
UNSAID = object()


def _add_limit(parser: Any) -> None:
    """Declare the queue and its limits."""
    parser.add_argument("queue", type=queue_name, metavar="QUEUE")
    parser.add_argument(
        "--concurrency",
        type=capacity,
        default=UNSAID,
        metavar="JOBS",
        help="So many at a time, or default: what the settings say.",
    )
    parser.add_argument(
        "--rate",
        type=rate_text,
        default=UNSAID,
        metavar="RATE",
        help="So many in a time, such as 100/m, or default: what the settings say.",
    )
    parser.add_argument(
        "--burst",
        type=whole_number(LANE_BURST_MAX),
        metavar="JOBS",
        help="Of --rate, how many may start at once (default 1).",
    )
    add_force(parser)


@reading
def rate_text(text: str) -> str | None:
    """Read a rate; None: what the settings say."""
    if text == DEFAULT:
        return None
    Rate(text)
    return text


def _limit(options: dict[str, Any], out: Output) -> int:
    """Change what was said, and nothing else."""
    name, text, jobs = options["queue"], options["rate"], options["concurrency"]
    if options["burst"] is not None and not isinstance(text, str):
        raise CommandError("--burst needs a --rate beside it.", returncode=EXIT_USAGE)
    if text is UNSAID and jobs is UNSAID:
        raise CommandError("Say --concurrency, --rate or both.", returncode=EXIT_USAGE)
    check_is_known(name, options)
    if known_queue(name) is not None:
        raise CommandError(
            f"{name} is a pull queue: no worker claims from it, so a limit would do "
            f"nothing."
        )
    answer: dict[str, Any] = {"queue": name}
    told, is_done = [], False
    if jobs is not UNSAID:
        is_done |= operate.set_concurrency(name, jobs)
        answer["concurrency"] = jobs
        told.append(
            "as many at a time as the settings say"
            if jobs is None
            else f"{count(jobs)} at a time"
        )
    if text is not UNSAID:
        said = None if text is None else Rate(text, options["burst"] or 1)
        is_done |= operate.set_rate(name, said)
        answer["rate"], answer["burst"] = text, None if said is None else said.burst
        told.append(
            "the rate that the settings say"
            if said is None
            else f"{rate(said.spacing)}, {count(said.burst)} at once"
        )
    takes = "; ".join(told)
    return out.answer(
        {**answer, "changed": is_done},
        is_done,
        f"Queue {shown(name)} takes {takes}.",
        f"Queue {shown(name)} took {takes} already.",
    )


STATS = Subcommand(
    "Count the jobs of each queue by state; once, or every few seconds.",
    _add_stats,
    _stats,
)

LIMIT = Subcommand(
    "Say how many jobs of a queue run at a time, and in a time, on all workers "
    "together, whatever the settings say.",
    _add_limit,
    _limit,
)
