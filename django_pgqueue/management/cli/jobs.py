"""pgqueue jobs: list jobs by filters, the newest first."""

from __future__ import annotations

from typing import Any

from django_pgqueue.log.browse import LOOK_ROWS_MAX
from django_pgqueue.management.cli import rows
from django_pgqueue.management.cli.acting import suggest
from django_pgqueue.management.cli.by_error import add_by, grouped
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Column, Output
from django_pgqueue.management.cli.words import (
    STATES,
    add_filters,
    add_limit,
    job_id,
    state,
)
from django_pgqueue.operators.human import distance

HELP = "List jobs by filters, the newest first."

WAY = "All of a group: manage.py pgqueue retry --task TASK --error CLASS"

LIMIT_DEFAULT = 50

COLUMNS = (
    Column("id", right=True),
    Column("state"),
    Column("queue", may_cut=True),
    Column("task", may_cut=True),
    Column("attempt", right=True),
    Column("when"),
    Column("worker", may_cut=True),
)


def add_arguments(parser: Any) -> None:
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


def run(options: dict[str, Any], out: Output) -> int:
    """Print one line for each job."""
    filters = rows.Filters.of(options)
    if options["by"]:
        retrying = filters.apply(rows.live({"retrying"}))
        return grouped(rows.live(), retrying, out, WAY)
    page = rows.page(filters, before=options["before"], limit=options["limit"])
    if out.as_json:
        out.json({"jobs": list(map(_as_json, page.rows)), "next": page.next_before})
    elif page.rows:
        out.table(COLUMNS, list(map(_row, page.rows)))
    else:
        out.line("No job matches.")
        suggest(filters, out)
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


def _row(row: dict[str, Any]) -> list[object]:
    return [
        row["id"],
        row.get("state", "dead"),
        row["queue"],
        row["task"],
        f"{row['attempt']}/{row['max_attempts']}",
        _when(row),
        row.get("leased_by") or row.get("worker"),
    ]


def _when(row: dict[str, Any]) -> str:
    """Return since when or from when a job is in its state."""
    clock = row["clock"]
    if "finished_at" in row:
        return distance(row["finished_at"], clock)
    if row["state"] == "running":
        return distance(row["leased_at"], clock)
    return distance(row["visible_at"] or row["enqueued_at"], clock)


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    plain = {
        name: value
        for name, value in row.items()
        if name != "clock" and not name.startswith("error_")
    }
    return {"id": row["id"], "state": "dead", **plain}
