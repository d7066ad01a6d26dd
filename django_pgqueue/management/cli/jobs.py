"""pgqueue jobs and dead: lists of jobs, of dead letters, and of errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet

from django_pgqueue.log.browse import LOOK_ROWS_MAX
from django_pgqueue.management.cli import rows
from django_pgqueue.management.cli.acting import suggest
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    Output,
    Subcommand,
)
from django_pgqueue.management.cli.words import (
    STATES,
    add_filters,
    add_limit,
    job_id,
    state,
)
from django_pgqueue.operators.error_groups import Group, groups
from django_pgqueue.operators.human import distance, last_error
from django_pgqueue.operators.paging import floor_of, in_order

# Errors that are alike ----------------------------------------------------------------


# Rows that are grouped.
ROWS_MAX = 10_000


BLOCKS = "▁▂▃▄▅▆▇█"


def add_by(parser: Any, what: str) -> None:
    """Declare --by."""
    parser.add_argument(
        "--by",
        choices=("error",),
        help=f"Group {what} by task, error and place, the largest group first.",
    )


def grouped(rows: QuerySet[Any], chosen: QuerySet[Any], out: Output, way: str) -> int:
    """
    Print a line for each group of the newest rows.

    Args:
        rows: The table, whatever is asked for.
        chosen: Those of it that are meant.
        out: Where to print.
        way: What can be done with a whole group.
    """
    with in_order():
        floor = floor_of(rows)
        found, read = groups(chosen.filter(id__gte=floor or 0), ROWS_MAX)
    is_all = floor is None and read < ROWS_MAX
    if out.as_json:
        told = [_error_as_json(group) for group in found]
        out.json({"groups": told, "read": read, "is_complete": is_all})
    elif found:
        out.table([_error_row(group) for group in found])
        out.line()
        if not is_all:
            out.line(f"Of the newest {read:,}; there are more.")
        out.line(way)
    else:
        out.line("Nothing here has failed.")
    return EXIT_DONE if found else EXIT_NOTHING


def _error_row(group: Group) -> dict[str, object]:
    return {
        "count": f"{group.count:,}",
        "task": group.alike.task,
        "last error": group.alike.error,
        "place": group.alike.place,
        "reason": group.alike.reason or "retrying",
        "first": distance(group.first, group.clock),
        "latest": distance(group.latest, group.clock),
        "trend": _trend(group.trend),
        "sample": group.sample,
    }


def _trend(counts: Sequence[int]) -> str:
    """Return small bars, the highest for the highest count; none where it is zero."""
    highest = max(counts)
    return "".join(
        BLOCKS[(count * len(BLOCKS) - 1) // highest] if count else " "
        for count in counts
    )


def _error_as_json(group: Group) -> dict[str, Any]:
    return {
        **group.alike._asdict(),
        "count": group.count,
        "first": group.first,
        "latest": group.latest,
        "sample": group.sample,
        "trend": group.trend,
    }


# Jobs ---------------------------------------------------------------------------------


RETRY_WAY = "All of a group: manage.py pgqueue retry --task TASK --error CLASS"

LIMIT_DEFAULT = 50


def _add_jobs(parser: Any) -> None:
    """Declare filters and paging."""
    add_filters(parser, "queue", "task", "tag", "error")
    add_by(parser, "the newest that wait for their next attempt")
    parser.add_argument(
        "--state",
        action="append",
        type=state,
        metavar="STATE",
        help=f"In this state; may be given again. Default: all live ones. "
        f"States: {', '.join(STATES)}.",
    )
    add_paging(parser)


def add_paging(parser: Any) -> None:
    """Declare --limit and --before."""
    add_limit(parser, LIMIT_DEFAULT)
    parser.add_argument(
        "--before", type=job_id, metavar="ID", help="Go on below this id."
    )


def _list_jobs(options: dict[str, Any], out: Output) -> int:
    """Print one line for each job."""
    filters = rows.filters_of(options)
    if options["by"]:
        retrying = rows.passing(rows.live({"retrying"}), filters)
        return grouped(rows.live(), retrying, out, RETRY_WAY)
    page = rows.page(filters, before=options["before"], limit=options["limit"])
    if out.as_json:
        out.json({"jobs": list(map(_job_as_json, page.rows)), "next": page.next_before})
    elif page.rows:
        out.table(list(map(_job_row, page.rows)))
    else:
        out.line("No job matches.")
        suggest(out, **filters)
    if not out.as_json:
        say_next(page, out)
    return EXIT_DONE if page.rows else EXIT_NOTHING


def say_next(page: rows.Page, out: Output) -> None:
    """Say that there are more, or may be, and how to see them."""
    if page.is_cut:
        out.note(
            f"{LOOK_ROWS_MAX:,} jobs were looked through; there may be more: "
            f"--before {page.next_before}"
        )
    elif page.next_before is not None:
        out.note(f"More: --before {page.next_before}")


def _job_row(row: dict[str, Any]) -> dict[str, object]:
    return {
        "id": row["id"],
        "state": row.get("state", "dead"),
        "queue": row["queue"],
        "task": row["task"],
        "attempt": f"{row['attempt']}/{row['max_attempts']}",
        "when": _when(row),
        "worker": row.get("leased_by") or row.get("worker"),
    }


def _when(row: dict[str, Any]) -> str:
    """Return since when or from when a job is in its state."""
    clock = row["clock"]
    if "finished_at" in row:
        return distance(row["finished_at"], clock)
    if row["state"] == "running":
        return distance(row["leased_at"], clock)
    return distance(row["visible_at"] or row["enqueued_at"], clock)


def _job_as_json(row: dict[str, Any]) -> dict[str, Any]:
    plain = {
        name: value
        for name, value in row.items()
        if name != "clock" and not name.startswith("error_")
    }
    return {"id": row["id"], "state": "dead", **plain}


# Dead letters -------------------------------------------------------------------------


REDRIVE_WAY = "All of a group: manage.py pgqueue redrive --task TASK --error CLASS"

# Dead letters that are counted by reason.
COUNT_MAX = 10_000


def _add_dead(parser: Any) -> None:
    """Declare filters and paging."""
    add_filters(parser, "queue", "task", "tag", "reason", "error", "since", "age")
    add_by(parser, "the newest")
    add_paging(parser)


def _list_dead(options: dict[str, Any], out: Output) -> int:
    """Print one line for each dead letter."""
    filters = rows.filters_of({**options, "state": ["dead"]})
    if options["by"]:
        return grouped(
            rows.dead(), rows.passing(rows.dead(), filters), out, REDRIVE_WAY
        )
    page = rows.page(filters, before=options["before"], limit=options["limit"])
    counts, is_all = _count(filters)
    if out.as_json:
        out.json(
            {
                "dead_letters": list(map(_dead_as_json, page.rows)),
                "next": page.next_before,
                "reasons": counts,
                "reasons_are_complete": is_all,
            }
        )
        return EXIT_DONE if page.rows else EXIT_NOTHING
    if page.rows:
        out.table(list(map(_dead_row, page.rows)))
        told = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
        out.line()
        if told:
            out.line(told if is_all else f"Among the newest: {told}")
    else:
        out.line("No dead letter matches.")
        suggest(out, **filters)
    say_next(page, out)
    return EXIT_DONE if page.rows else EXIT_NOTHING


def _count(filters: dict[str, Any]) -> tuple[dict[str, int], bool]:
    """Return how many of the newest have each reason, and whether those are all."""
    floor = floor_of(rows.dead())
    newest = rows.dead().filter(id__gte=floor or 0).order_by("-id")
    reasons = rows.passing(newest, filters).values_list("reason", flat=True)
    found = list(reasons[: COUNT_MAX + 1])
    counts = Counter(found[:COUNT_MAX])
    return dict(counts.most_common()), floor is None and len(found) <= COUNT_MAX


def _dead_row(row: dict[str, Any]) -> dict[str, object]:
    return {
        "id": row["id"],
        "reason": row["reason"],
        "queue": row["queue"],
        "task": row["task"],
        "attempt": f"{row['attempt']}/{row['max_attempts']}",
        "gave up": distance(row["finished_at"], row["clock"]),
        "last error": _last_error(row),
    }


def _last_error(row: dict[str, Any]) -> str:
    return last_error(*(row[name] for name in rows.ERROR_COLUMNS))


def _dead_as_json(row: dict[str, Any]) -> dict[str, Any]:
    plain = {
        name: value
        for name, value in row.items()
        if name != "clock" and name not in rows.ERROR_COLUMNS
    }
    return {**plain, "last_error": _last_error(row)}


JOBS = Subcommand(
    "List jobs by filters, the newest first.",
    _add_jobs,
    _list_jobs,
)

DEAD = Subcommand(
    "List dead letters, the newest ids first, and count them by reason or error.",
    _add_dead,
    _list_dead,
)
