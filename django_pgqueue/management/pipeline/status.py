"""pgqueue_pipeline status: the latest runs, and how far the live ones are."""

from __future__ import annotations

from typing import Any

from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Output
from django_pgqueue.management.cli.words import whole_number
from django_pgqueue.operators.human import duration
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.tasks import database

HELP = "Show the latest runs of each pipeline job."

RUNS_DEFAULT, RUNS_MAX = 5, 1_000


def add_arguments(parser: Any) -> None:
    """Declare which runs are shown."""
    parser.add_argument("job", nargs="?", metavar="JOB", help="Of this job alone.")
    parser.add_argument(
        "--limit",
        type=whole_number(RUNS_MAX),
        default=RUNS_DEFAULT,
        metavar="N",
        help=f"Runs of each job (default {RUNS_DEFAULT}).",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Print a line for each run; status 1 if there is none."""
    with database.cursor() as cursor:
        found = pipelines.latest(cursor, job=options["job"], limit=options["limit"])
    if out.as_json:
        out.json({"runs": found})
    elif found:
        out.table([_row(row) for row in found])
    else:
        out.line("There is no such run.")
    return EXIT_DONE if found else EXIT_NOTHING


def _row(row: dict[str, Any]) -> dict[str, object]:
    return {
        "run": row["id"],
        "job": row["job"],
        "state": row["state"],
        "started": f"{row['started_at']:%Y-%m-%d %H:%M:%S}",
        "took": duration(row["seconds"]),
        "rows in": f"{row['rows_in']:,}",
        "rows out": f"{row['rows_out']:,}",
        "asked by": row["asked_by"],
        "": _note(row),
    }


def _note(row: dict[str, Any]) -> str:
    if row["error"]:
        return str(row["error"]).splitlines()[0]
    progress = row["progress"]
    if row["state"] != "running":
        return " ".join(progress.get("notes", ()))
    parts = [str(progress.get("phase", ""))]
    if progress.get("tasks"):
        parts.append(f"{progress['tasks_done']}/{progress['tasks']} tasks")
    if progress.get("rows_per_second"):
        parts.append(f"{progress['rows_per_second']:,.0f} rows/s")
    if row["cancel_requested_at"]:
        parts.append(f"asked to stop by {row['cancel_requested_by'] or 'somebody'}")
    parts.append(row["ui_url"] or "")
    return ", ".join(filter(None, parts))
