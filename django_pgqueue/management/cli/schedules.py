"""pgqueue schedules: what is enqueued or published by itself, and what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django_pgqueue.exceptions import ScheduleError
from django_pgqueue.management.cli.acting import operator_name
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Output
from django_pgqueue.management.cli.queues import pause, resume
from django_pgqueue.management.cli.words import (
    add_actions,
    add_limit,
    add_reason,
    plain_text,
)
from django_pgqueue.operators.human import distance, duration, in_utc, shown, timetable
from django_pgqueue.operators.pausable import SCHEDULE
from django_pgqueue.schedules import operate, ticks
from django_pgqueue.schedules.store import ScheduleRow, database_now, find_all
from django_pgqueue.schedules.ticks import TickRow
from django_pgqueue.schedules.timetables import next_ticks, state_of, timetable_of
from django_pgqueue.tasks import database
from django_pgqueue.timetable.ticks import shift

HELP = "List schedules; show their ticks, run, pause and resume one."

NEXT_DEFAULT = 5
LAST_DEFAULT = 10


def add_arguments(parser: Any) -> None:
    """Declare what is done with which schedule; nothing said lists all of them."""
    actions = add_actions(parser, {name: told for name, (_, told) in ACTIONS.items()})
    for own in actions.values():
        own.add_argument("name", type=plain_text, metavar="NAME")
    add_limit(actions["next"], NEXT_DEFAULT, "--count", "So many")
    add_limit(actions["last"], LAST_DEFAULT, "--count", "So many")
    add_reason(actions["pause"], "schedule")


def run(options: dict[str, Any], out: Output) -> int:
    """List schedules, or do what is asked for with one."""
    rows, now = _read()
    if options.get("action") in (None, "list"):
        return _list(rows, now, out)
    row = next((each for each in rows if each.name == options["name"]), None)
    if row is None:
        names = [each.name for each in rows]
        return out.missing("schedule", options["name"], names, {"schedule": None})
    act, _told = ACTIONS[options["action"]]
    return act(row, now, options, out)


def _read() -> tuple[list[ScheduleRow], datetime]:
    with database.cursor() as cursor:
        return [_in_utc(row) for row in find_all(cursor)], database_now(cursor)


def _list(rows: list[ScheduleRow], now: datetime, out: Output) -> int:
    with database.cursor() as cursor:
        found = ticks.latest(cursor, [row.id for row in rows], 1)
    latest = {tick.schedule_id: _in_utc(tick) for tick in found}
    if out.as_json:
        told = [_as_json(row, latest.get(row.id), now) for row in rows]
        out.json({"schedules": told})
    elif rows:
        out.table([_row(row, latest.get(row.id), now) for row in rows])
    else:
        out.line("There is no schedule.")
    return EXIT_DONE


def _next(row: ScheduleRow, now: datetime, options: dict[str, Any], out: Output) -> int:
    try:
        table = timetable_of(row)
    except ScheduleError as error:
        out.note(f"Schedule {shown(row.name)} cannot be read: {shown(error)}")
        return EXIT_NOTHING
    zone = getattr(table, "zone", UTC)
    found = [
        (tick, shift(table, tick)) for tick in next_ticks(table, now, options["count"])
    ]
    if out.as_json:
        told = [
            {
                "due_at": tick,
                "by_its_clock": tick.astimezone(zone),
                "shift": mark and mark.kind,
                "collapsed": mark.collapsed if mark else 1,
            }
            for tick, mark in found
        ]
        out.json({"schedule": row.name, "ticks": told})
        return EXIT_DONE
    out.line(f"{shown(row.name)}: {shown(_when(row))}")
    if not row.has_ticks:
        out.line(f"It is {state_of(row, now)}: none of these is issued now.")
    out.table(
        [
            {
                "by its clock": f"{tick.astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z}",
                "in UTC": f"{tick:%a %Y-%m-%d %H:%M:%S}",
                "from now": distance(tick, now),
                "": NOTES[mark.kind].format(count=mark.collapsed) if mark else "",
            }
            for tick, mark in found
        ]
    )
    return EXIT_DONE


def _last(row: ScheduleRow, now: datetime, options: dict[str, Any], out: Output) -> int:
    with database.cursor() as cursor:
        latest = ticks.latest(cursor, [row.id], options["count"])
    found = [_in_utc(tick) for tick in latest]
    if out.as_json:
        out.json({"schedule": row.name, "ticks": list(map(_tick_as_json, found))})
    elif found:
        out.table([_tick_row(tick) for tick in found])
    else:
        out.line(f"Schedule {shown(row.name)} has had no tick yet.")
    return EXIT_DONE if found else EXIT_NOTHING


def _run(row: ScheduleRow, now: datetime, options: dict[str, Any], out: Output) -> int:
    issued = operate.run_now(row.name, by=operator_name())
    job = issued and issued.job_id
    if out.as_json:
        message = issued and issued.message_id
        out.json({"schedule": row.name, "job": job, "message": message})
    elif issued is None:
        out.line(f"Schedule {shown(row.name)} has gone.")
    elif issued.message_id is not None:
        jobs = f"{issued.jobs} job{'' if issued.jobs == 1 else 's'}"
        out.line(
            f"Message {issued.message_id}, {shown(issued.message_name)}, was "
            f"published; its subscriptions made {jobs}."
        )
    elif job is None:
        out.line("No job was enqueued: another one has the dedup key of its task.")
    else:
        out.line(f"Job {job} was enqueued in queue {shown(issued.queue)}.")
    is_done = issued is not None and (job or issued.message_id is not None)
    return EXIT_DONE if is_done else EXIT_NOTHING


Act = Callable[[ScheduleRow, datetime, dict[str, Any], Output], int]

ACTIONS: dict[str, tuple[Act, str]] = {
    "next": (_next, "The next ticks, by two clocks."),
    "last": (_last, "The latest ticks, and what has become of their jobs."),
    "run": (_run, "Enqueue or publish now, paused or not; ticks go on as they were."),
    "pause": (
        lambda row, now, options, out: pause(SCHEDULE, row, row.name, options, out),
        "Let it have no ticks; those are not made up for.",
    ),
    "resume": (
        lambda row, now, options, out: resume(SCHEDULE, row, row.name, out),
        "End its pause.",
    ),
}

NOTES = {
    "moved": "after a gap of the clock: {count} in one",
    "first": "the clock shows it twice: the first",
    "second": "the clock shows it twice: the second",
}


def _row(row: ScheduleRow, last: TickRow | None, now: datetime) -> dict[str, object]:
    return {
        "name": row.name,
        "state": state_of(row, now),
        "next": distance(_next_tick(row, now), now),
        "last": distance(last.due_at, now) if last else "",
        "job": (last.state or last.outcome) if last else "",
        "when": _when(row),
    }


def _next_tick(row: ScheduleRow, now: datetime) -> datetime | None:
    """Return its next tick, also before a worker has reckoned that."""
    if not row.has_ticks or row.error is not None or row.next_tick is not None:
        return row.next_tick if row.has_ticks else None
    try:
        return timetable_of(row).next_after(now)
    except ScheduleError:
        return None


def _when(row: ScheduleRow) -> str:
    when = timetable(row)
    return when if row.message_name is None else f"{when}, publishes {row.message_name}"


def _coming(row: ScheduleRow, now: datetime) -> list[datetime]:
    try:
        return list(next_ticks(timetable_of(row), now, NEXT_DEFAULT))
    except ScheduleError:
        return []


def _tick_row(tick: TickRow) -> dict[str, object]:
    late = (tick.ticked_at - tick.due_at).total_seconds()
    return {
        "due": f"{tick.due_at:%Y-%m-%d %H:%M:%S}",
        "outcome": tick.outcome,
        "job or message": tick.job_id if tick.message_id is None else tick.message_id,
        "state": tick.state,
        "ran": duration(tick.ran_seconds),
        "late": "" if tick.asked_by else duration(late),
        "missed": tick.missed or "",
        "by": tick.asked_by,
    }


def _as_json(row: ScheduleRow, last: TickRow | None, now: datetime) -> dict[str, Any]:
    left_out = (
        *("args", "kwargs", "declared", "id", "revision"),
        *("message_key", "message_payload"),
    )
    told = {
        field.name: getattr(row, field.name)
        for field in dataclasses.fields(row)
        if field.name not in left_out
    }
    return {
        **told,
        "state": state_of(row, now),
        "next_ticks": _coming(row, now),
        "changed_here": sorted(row.drift),
        "last": None if last is None else _tick_as_json(last),
    }


def _tick_as_json(tick: TickRow) -> dict[str, Any]:
    told = dataclasses.asdict(tick)
    del told["schedule_id"]
    return told


def _in_utc(row: Any) -> Any:
    """Return a row with its times in UTC, whatever the project's settings are."""
    times = {
        field.name: in_utc(value)
        for field in dataclasses.fields(row)
        if isinstance(value := getattr(row, field.name), datetime)
    }
    return dataclasses.replace(row, **times)
