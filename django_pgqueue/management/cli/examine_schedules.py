"""What the doctor asks of schedules."""

from __future__ import annotations

from collections.abc import Iterator

from django_pgqueue.conf import Settings
from django_pgqueue.management.cli.examine_jobs import named
from django_pgqueue.management.cli.text import shown
from django_pgqueue.operators.findings import START, Finding, finding
from django_pgqueue.operators.human import age
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.states import OVERDUE, state_of
from django_pgqueue.schedules.store import ScheduleRow, database_now, find_all
from django_pgqueue.tasks import registry


def schedules(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Are ticks issued, and is every schedule what somebody wants?"""
    rows, now = find_all(cursor), database_now(cursor)
    states = {row.name: state_of(row, now) for row in rows}
    late = {
        row.name: (now - row.next_tick).total_seconds()
        for row in rows
        if states[row.name] == "overdue" and row.next_tick is not None
    }
    most = max(late.values(), default=0.0)
    yield finding(
        check="ticks",
        wrong=late,
        what=f"Ticks are overdue, the first for {age(most)}: {named(list(late))}.",
        right="No tick of a schedule is overdue.",
        severity="error",
        value=most,
        limit=OVERDUE.total_seconds(),
        way_out=f"No living worker issues them: {START}",
    )
    yield _faulty([row for row in rows if states[row.name] == "faulty"])
    yield _withdrawn([row.name for row in rows if states[row.name] == "withdrawn"])
    yield _hidden(rows)
    yield _tasks([row for row in rows if row.has_ticks])


def _faulty(rows: list[ScheduleRow]) -> Finding:
    error = shown(rows[0].error) if rows else ""
    return finding(
        check="schedules",
        wrong=rows,
        what=f"Schedules have no ticks, since they cannot be read, or their tick "
        f"cannot be issued: {named([row.name for row in rows])}. {error}",
        right="Every schedule can be read.",
        severity="error",
        value=[row.name for row in rows],
        way_out="Fix what the error names, or edit or delete them in the admin. What "
        "failed is tried again once a minute.",
    )


def _withdrawn(names: list[str]) -> Finding:
    return finding(
        check="withdrawn",
        wrong=names,
        what=f"Schedules are declared no longer, and rest: {named(names)}.",
        right="Every schedule of code is declared.",
        value=names,
        way_out="Delete them in the admin, if they are not to come back.",
    )


def _hidden(rows: list[ScheduleRow]) -> Finding:
    ours = {each.name for each in declared()}
    names = [row.name for row in rows if row.source == "user" and row.name in ours]
    return finding(
        check="hidden",
        wrong=names,
        what="Code declares schedules under names that users have taken: "
        f"{named(names)}.",
        right="No schedule of a user hides one of code.",
        value=names,
        way_out="Those of users hold. Delete them in the admin, then migrate.",
    )


def _tasks(rows: list[ScheduleRow]) -> Finding:
    unknown = [
        row
        for row in rows
        if row.message_name is None and row.task not in registry.tasks
    ]
    told = named([f"{row.name} ({row.task})" for row in unknown])
    return finding(
        check="schedule_tasks",
        wrong=unknown,
        what=f"Schedules have a task that is not declared here: {told}.",
        right="The task of every schedule is declared.",
        value=[row.name for row in unknown],
        way_out="Deploy the code that has it, or pause the schedule; its jobs wait, "
        "and then are dead.",
    )
