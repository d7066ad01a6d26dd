"""
Rows: jobs of the three tables, by filters, a page at a time.

Pages go by id, the newest first. One page looks through LOOK_ROWS_MAX rows of each
table, and says where to go on.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Left, Now

from django_pgqueue.conf import get_settings
from django_pgqueue.models import ArchivedJob, DeadLetter, Job
from django_pgqueue.models.job import ArchivedState, LiveState, live_state
from django_pgqueue.operators.filters import JOBS, narrow
from django_pgqueue.operators.paging import floor_of, in_order

# Characters of the last error that lists show.
MESSAGE_CHARACTERS_MAX = 300

COLUMNS = (
    "id",
    "queue",
    "task",
    "priority",
    "attempt",
    "max_attempts",
    "enqueued_at",
    "clock",
    "tags",
)
LIVE_COLUMNS = (*COLUMNS, "visible_at", "leased_by", "leased_at")
ENDED_COLUMNS = (*COLUMNS, "started_at", "finished_at", "worker")
ERROR_COLUMNS = ("error_type", "error_kind", "error_message")

NAMES = ("queue", "task", "tag", "reason", "error_named", "since", "older")


def filters_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return the filters that the command line gives, by their names in JOBS."""
    given = {name: options.get(name) for name in NAMES}
    given["states"] = sorted(options.get("state") or ())
    return {name: value for name, value in given.items() if value}


def passing(rows: QuerySet[Any], filters: Mapping[str, Any]) -> QuerySet[Any]:
    """Return the *rows* that pass the filters, except for that of states."""
    others = {name: value for name, value in filters.items() if name != "states"}
    return narrow(rows, JOBS, others)


class Page(NamedTuple):
    """Some rows, the newest first."""

    rows: list[dict[str, Any]]
    # Go on below this id; None: that was all.
    next_before: int | None
    # Whether there are fewer rows than asked for because too many were looked through.
    is_cut: bool


def page(filters: Mapping[str, Any], *, before: int | None, limit: int) -> Page:
    """Return the newest jobs that pass, with an id below *before*."""
    found: list[dict[str, Any]] = []
    floors = []
    for rows in _tables(filters):
        below = {} if before is None else {"id__lt": before}
        with in_order():
            # Of all rows, whatever their state: rare ones are far apart.
            whole = rows.model._default_manager.using(rows.db).filter(**below)
            floor = floor_of(whole) if filters else None
            passed = passing(rows.filter(**below), filters)
            if floor is not None:
                passed = passed.filter(id__gte=floor)
            listed = list(_values(passed.order_by("-id"))[: limit + 1])
        found += listed
        if floor is not None and len(listed) <= limit:
            floors.append(floor)
    found.sort(key=operator.itemgetter("id"), reverse=True)
    # Below the highest floor a table was not looked at, so other tables' rows wait.
    floor = max(floors, default=0)
    kept = [row for row in found if row["id"] >= floor][:limit]
    if len(kept) == limit and len(found) > limit:
        return Page(kept, kept[-1]["id"], is_cut=False)
    return Page(kept, floor or None, is_cut=floor > 0 and len(kept) < limit)


def live(states: Collection[str] = ()) -> QuerySet[Any]:
    """Return the jobs that wait, run or are parked, with their state: one of these."""
    rows = Job.objects.using(get_settings().database).annotate(state=live_state())
    return narrow(rows, JOBS, {"states": states}) if states else rows


def dead() -> QuerySet[Any]:
    """Return the dead letters."""
    return DeadLetter.objects.using(get_settings().database).all()


def _tables(filters: Mapping[str, Any]) -> Iterator[QuerySet[Any]]:
    alias, states = get_settings().database, {*filters.get("states", ())}
    if not states or states & set(LiveState.values):
        yield live(states)
    archived = states & set(ArchivedState.values)
    if archived:
        rows = ArchivedJob.objects.using(alias)
        yield rows.filter(state__in=archived)
    if "dead" in states:
        yield dead()


def _values(rows: QuerySet[Any]) -> Any:
    rows = rows.annotate(clock=Now(), tags=KeyTransform("tags", "headers"))
    if rows.model is Job:
        return rows.values(*LIVE_COLUMNS, "state")
    if rows.model is ArchivedJob:
        return rows.values(*ENDED_COLUMNS, "state")
    last = KeyTransform(-1, "errors")
    heads = {
        f"error_{key}": Left(KeyTextTransform(key, last), MESSAGE_CHARACTERS_MAX)
        for key in ("type", "kind", "message")
    }
    return rows.annotate(**heads).values(*ENDED_COLUMNS, "reason", *ERROR_COLUMNS)
