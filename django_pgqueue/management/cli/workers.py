"""pgqueue workers: the worker processes, and which jobs they hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_pgqueue.conf import get_settings
from django_pgqueue.management.cli.output import EXIT_DONE, Output
from django_pgqueue.management.cli.words import plain_text
from django_pgqueue.models import Worker
from django_pgqueue.operators import workers
from django_pgqueue.operators.human import age, count, distance, exact, in_utc, shown
from django_pgqueue.queues.workers import Leased
from django_pgqueue.tasks import database
from django_pgqueue.worker.serving import WORKERS_MAX

HELP = "List worker processes, and which jobs they hold: the longest held first."

WORKER = attrgetter("worker")

# Jobs that are counted, of all workers together.
JOBS_MAX = 10_000


def add_arguments(parser: Any) -> None:
    """Declare the worker; nothing said lists all of them."""
    parser.add_argument(
        "name",
        nargs="?",
        type=plain_text,
        metavar="NAME",
        help="All of this one, and of the jobs that it holds.",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """List workers, or show one."""
    name = options["name"]
    if name is None:
        return _list(out)
    row = _rows().filter(name=name).first()
    if row is None:
        names = [each.name for each in workers.latest(WORKERS_MAX)]
        return out.missing("worker", name, names, {"worker": None})
    return _show(row, out)


def _rows() -> QuerySet[Any]:
    return Worker.objects.using(get_settings().database).annotate(clock=Now())


def _held(names: Sequence[str], most: int) -> tuple[list[Leased], bool]:
    """Return at most so many jobs that workers hold, and whether there are more."""
    with database.cursor() as cursor:
        held = workers.held(cursor, names, limit=most + 1)
    return held[:most], len(held) > most


def _list(out: Output) -> int:
    rows = workers.latest(WORKERS_MAX + 1)
    is_cut, rows = len(rows) > WORKERS_MAX, rows[:WORKERS_MAX]
    rows.sort(key=attrgetter("started_at", "name"))
    jobs, is_more = _held([row.name for row in rows], JOBS_MAX)
    jobs_of: dict[str, list[Leased]] = {row.name: [] for row in rows}
    for job in jobs:
        jobs_of[job.worker].append(job)
    # In the order of the jobs; then those that hold none.
    place = {name: place for place, name in reversed([*enumerate(map(WORKER, jobs))])}
    rows.sort(key=lambda row: place.get(row.name, len(jobs)))
    if out.as_json:
        told = [_as_json(row, jobs_of[row.name]) for row in rows]
        out.json({"workers": told, "is_partial": is_cut or is_more})
        return EXIT_DONE
    if rows:
        out.table([_row(row, jobs_of[row.name], is_more) for row in rows])
    else:
        out.line("There is no worker.")
    if is_cut:
        out.note(f"There are more: these {WORKERS_MAX:,} were heard of last.")
    return EXIT_DONE


def _show(row: Any, out: Output) -> int:
    held, is_more = _held([row.name], workers.HELD_JOBS_MAX)
    if out.as_json:
        told = _as_json(row, held)
        told["held"] = [_job_as_json(job, row.clock) for job in held]
        out.json({"worker": told, "is_partial": is_more})
        return EXIT_DONE
    out.line(f"Worker {shown(row.name)} is {workers.state_word(row)}")
    out.facts(
        {
            "host": row.hostname,
            "pid": row.pid,
            "queues": workers.queues(row),
            "slots": workers.slots(row),
            "version": row.version,
            "started": exact(row.started_at, row.clock),
            "heartbeat": exact(row.heartbeat_at, row.clock),
            "leads until": exact(row.leader_until, row.clock),
        }
    )
    out.line()
    if not held:
        out.line("It holds no job.")
        return EXIT_DONE
    lines = [
        {
            "id": job.id,
            "queue": job.queue,
            "task": job.task,
            "held": _age(job, row.clock),
        }
        for job in held
    ]
    out.table(lines)
    if is_more:
        out.note("There are more.")
    return EXIT_DONE


def _row(row: Any, held: Sequence[Leased], is_more: bool) -> dict[str, object]:
    longest = held[0] if held else None
    return {
        "worker": row.name,
        "state": workers.state_word(row),
        "host": row.hostname,
        "pid": row.pid,
        "queues": workers.queues(row),
        "slots": workers.slots(row),
        "heartbeat": distance(row.heartbeat_at, row.clock),
        "jobs": count(len(held), is_more=is_more),
        "longest": longest and _age(longest, row.clock),
        "job": longest and longest.id,
        "task": longest and longest.task,
    }


def _age(job: Leased, clock: datetime) -> str:
    return age(_seconds(job, clock))


def _seconds(job: Leased, clock: datetime) -> float | None:
    if job.leased_at is None:
        return None
    # A lease of just now may be younger than the clock that was read before it.
    return max((clock - job.leased_at).total_seconds(), 0.0)


def _as_json(row: Any, held: Sequence[Leased]) -> dict[str, Any]:
    names = ("name", "hostname", "pid", "queues", "threads", "async_slots", "version")
    return {
        **{name: getattr(row, name) for name in names},
        "state": "silent" if workers.is_silent(row) else "alive",
        "leads": workers.leads(row),
        "started_at": in_utc(row.started_at),
        "heartbeat_at": in_utc(row.heartbeat_at),
        "silent_seconds": workers.silent_seconds(row),
        "jobs": len(held),
        "longest": _job_as_json(held[0], row.clock) if held else None,
    }


def _job_as_json(job: Leased, clock: datetime) -> dict[str, Any]:
    told = {"id": job.id, "task": job.task, "queue": job.queue}
    leased_at = job.leased_at and in_utc(job.leased_at)
    return {**told, "leased_at": leased_at, "seconds": _seconds(job, clock)}
