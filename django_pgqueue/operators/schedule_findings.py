"""Schedule findings: what the rows of schedules say is wrong with their ticks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from django_pgqueue.operators.findings import START, Finding, finding, named
from django_pgqueue.operators.human import age, shown
from django_pgqueue.schedules.states import OVERDUE, state_of
from django_pgqueue.schedules.store import ScheduleRow
from django_pgqueue.tasks import registry


def of_schedules(rows: Sequence[ScheduleRow], now: datetime) -> Iterator[Finding]:
    """Are ticks issued, and can they be, by the database's clock?"""
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
