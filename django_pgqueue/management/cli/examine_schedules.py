"""What the doctor asks of schedules."""

from __future__ import annotations

from collections.abc import Iterator

from django_pgqueue.conf import Settings
from django_pgqueue.operators.findings import Finding, finding, named
from django_pgqueue.operators.schedule_findings import of_schedules
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.schedules.declare import declared
from django_pgqueue.schedules.store import ScheduleRow, database_now, find_all


def schedules(cursor: Cursor, settings: Settings) -> Iterator[Finding]:
    """Are ticks issued, and is every schedule what somebody wants?"""
    rows, now = find_all(cursor), database_now(cursor)
    yield from of_schedules(rows, now)
    yield _withdrawn([row.name for row in rows if row.withdrawn_at is not None])
    yield _hidden(rows)


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
