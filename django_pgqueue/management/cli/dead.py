"""pgqueue dead: list dead letters, and count them by reason."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django_pgqueue.management.cli import rows
from django_pgqueue.management.cli.acting import suggest
from django_pgqueue.management.cli.by_error import add_by, grouped
from django_pgqueue.management.cli.jobs import add_paging, say_next
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Column, Output
from django_pgqueue.management.cli.words import add_filters
from django_pgqueue.operators.human import distance, last_error
from django_pgqueue.operators.paging import floor_of

HELP = "List dead letters, the newest ids first, and count them by reason or error."

WAY = "All of a group: manage.py pgqueue redrive --task TASK --error CLASS"

# Dead letters that are counted by reason.
COUNT_MAX = 10_000

COLUMNS = (
    Column("id", right=True),
    Column("reason"),
    Column("queue", may_cut=True),
    Column("task", may_cut=True),
    Column("attempt", right=True),
    Column("gave up"),
    Column("last error", may_cut=True),
)


def add_arguments(parser: Any) -> None:
    """Declare filters and paging."""
    add_filters(parser, "queue", "task", "tag", "reason", "error", "since", "age")
    add_by(parser, "the newest")
    add_paging(parser)


def run(options: dict[str, Any], out: Output) -> int:
    """Print one line for each dead letter."""
    filters = rows.Filters.of({**options, "state": ["dead"]})
    if options["by"]:
        return grouped(rows.dead(), filters.apply(rows.dead()), out, WAY)
    page = rows.page(filters, before=options["before"], limit=options["limit"])
    counts, is_all = _count(filters)
    if out.as_json:
        out.json(
            {
                "dead_letters": list(map(_as_json, page.rows)),
                "next": page.next_before,
                "reasons": counts,
                "reasons_are_complete": is_all,
            }
        )
        return EXIT_DONE if page.rows else EXIT_NOTHING
    if page.rows:
        out.table(COLUMNS, list(map(_row, page.rows)))
        told = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
        out.line()
        if told:
            out.line(told if is_all else f"Among the newest: {told}")
    else:
        out.line("No dead letter matches.")
        suggest(filters, out)
    say_next(page, out)
    return EXIT_DONE if page.rows else EXIT_NOTHING


def _count(filters: rows.Filters) -> tuple[dict[str, int], bool]:
    """Return how many of the newest have each reason, and whether those are all."""
    floor = floor_of(rows.dead())
    newest = rows.dead().filter(id__gte=floor or 0).order_by("-id")
    reasons = filters.apply(newest).values_list("reason", flat=True)
    found = list(reasons[: COUNT_MAX + 1])
    counts = Counter(found[:COUNT_MAX])
    return dict(counts.most_common()), floor is None and len(found) <= COUNT_MAX


def _row(row: dict[str, Any]) -> list[object]:
    return [
        row["id"],
        row["reason"],
        row["queue"],
        row["task"],
        f"{row['attempt']}/{row['max_attempts']}",
        distance(row["finished_at"], row["clock"]),
        _last_error(row),
    ]


def _last_error(row: dict[str, Any]) -> str:
    return last_error(*(row[name] for name in rows.ERROR_COLUMNS))


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    plain = {
        name: value
        for name, value in row.items()
        if name != "clock" and name not in rows.ERROR_COLUMNS
    }
    return {**plain, "last_error": _last_error(row)}
