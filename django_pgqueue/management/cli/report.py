"""pgqueue report: what workers a wait needs, what was promised, what became slow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from django.core.management import CommandError

from django_pgqueue.conf import Settings, get_settings
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    EXIT_USAGE,
    Column,
    Output,
)
from django_pgqueue.management.cli.words import length, queue_name, whole_number
from django_pgqueue.operators import report
from django_pgqueue.operators.human import duration
from django_pgqueue.pipeline.capacity import Need
from django_pgqueue.pipeline.costs import BY, costs
from django_pgqueue.pipeline.unusual import unusual
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.tasks import database

HELP = "Tell of what metrics has counted: capacity, objectives, durations or costs."

COUNT = "Count with: manage.py pgqueue_pipeline run metrics"
NOTHING = f"Nothing has been counted for that. {COUNT}"
NO_HOUR = (
    f"No whole hour has been counted for that; the one that is under way is left out. "
    f"{COUNT}"
)


def add_arguments(parser: Any) -> None:
    """Declare what is told, and of what."""
    parser.add_argument("about", choices=sorted(REPORTS), help="What is told.")
    parser.add_argument(
        "--queue", type=queue_name, metavar="NAME", help="Of this queue."
    )
    parser.add_argument(
        "--days",
        type=lambda text: whole_number(text, report.DAYS_MAX),
        default=report.DAYS_DEFAULT,
        metavar="N",
        help=f"How far back, 1 to {report.DAYS_MAX} (default: {report.DAYS_DEFAULT}).",
    )
    parser.add_argument(
        "--wait",
        type=lambda text: length(text, "--wait", zero=False),
        metavar="TIME",
        help="Of capacity: 95 %% of the jobs are to start within 500ms, 30s, 5m "
        "(default: what the queue promises, or 5s).",
    )
    parser.add_argument(
        "--by",
        choices=BY,
        help=f"Of costs: what is told apart (default: {BY[0]}).",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Tell it; status 1 where nothing was counted, or a promise is broken."""
    about = options["about"]
    for name, of in (("wait", "capacity"), ("by", "costs")):
        if options[name] is not None and about != of:
            raise CommandError(
                f"--{name} is for {of}, and not for {about}.", returncode=EXIT_USAGE
            )
    with database.cursor() as cursor:
        return REPORTS[about](cursor, options, get_settings(), out)


def _capacity(
    cursor: Cursor, options: dict[str, Any], settings: Settings, out: Output
) -> int:
    found = report.capacities(
        cursor,
        settings,
        days=options["days"],
        queue=options["queue"] or "",
        wait=options["wait"],
    )
    if out.as_json:
        out.json(
            {
                "queues": [
                    {
                        "queue": each.queue,
                        "wait_seconds": each.wait,
                        **dataclasses.asdict(each.capacity),
                    }
                    for each in found
                ]
            }
        )
    elif found:
        columns = (
            Column("queue", may_cut=True),
            Column("wait", right=True),
            Column("threads", right=True),
            Column("usually", right=True),
            Column("p95 then", right=True),
        )
        rows = [
            (
                each.queue,
                duration(each.wait),
                f"{each.capacity.busiest.threads:,}",
                f"{each.capacity.usual.threads:,}",
                duration(each.capacity.busiest.wait_p95),
            )
            for each in found
        ]
        out.table(columns, rows)
        for each in found:
            busiest = each.capacity.busiest
            told = report.arithmetic(busiest, each.wait, _when)
            out.line(f"\n{each.queue}, {told}")
    return _told(found, out, NO_HOUR)


def _when(need: Need) -> str:
    return f"busiest hour {need.hour:%Y-%m-%d %H:%M}"


def _objectives(
    cursor: Cursor, options: dict[str, Any], settings: Settings, out: Output
) -> int:
    found = report.kept(
        cursor, settings, days=options["days"], queue=options["queue"] or ""
    )
    if out.as_json:
        told = [
            {
                "queue": queue,
                **dataclasses.asdict(budget),
                "kept": budget.kept,
                "left": budget.left,
                "is_kept": budget.is_kept,
            }
            for queue, budget in found
        ]
        out.json({"objectives": told})
    elif found:
        columns = (
            Column("queue", may_cut=True),
            Column("promise", may_cut=True),
            Column("jobs", right=True),
            Column("kept", right=True),
            Column("budget left", right=True),
            Column("burn rate", right=True),
            Column("state"),
        )
        rows = [
            (
                queue,
                report.promise(budget, settings, queue),
                f"{budget.jobs:,}",
                f"{budget.kept:.3%}",
                f"{budget.left:.0%}",
                f"{budget.burn_rate:.2g}",
                "ok" if budget.is_kept else "failed",
            )
            for queue, budget in found
        ]
        out.table(columns, rows)
    else:
        out.line(
            "No queue promises anything: say it in PGQUEUE['QUEUES'], such as "
            "{'mail': {'objective': {'wait': '30s', 'success': 0.999}}}."
        )
    return EXIT_DONE if all(each.budget.is_kept for each in found) else EXIT_NOTHING


def _durations(
    cursor: Cursor, options: dict[str, Any], settings: Settings, out: Output
) -> int:
    found = unusual(cursor, days=options["days"], queue=options["queue"] or "")
    if out.as_json:
        out.json({"durations": [each._asdict() for each in found]})
    elif found:
        columns = (
            Column("task", may_cut=True, keeps_end=True),
            Column("queue", may_cut=True),
            Column("runs"),
            Column("jobs", right=True),
            Column("last 24 h", right=True),
            Column("before", right=True),
            Column("usual up to", right=True),
        )
        rows = [
            (
                each.task,
                each.queue,
                each.mark,
                f"{each.jobs:,}",
                duration(each.lately),
                duration(each.before),
                duration(each.limit),
            )
            for each in found
        ]
        out.table(columns, rows)
    else:
        out.line("No task takes longer than usual.")
    return EXIT_DONE


def _costs(
    cursor: Cursor, options: dict[str, Any], settings: Settings, out: Output
) -> int:
    by, price = options["by"] or BY[0], settings.worker_hour_price
    found = costs(cursor, by=by, days=options["days"], queue=options["queue"] or "")
    total = sum(each.worker_seconds for each in found) or 1.0
    if out.as_json:
        told = [{**each._asdict(), "price": each.price(price)} for each in found]
        out.json({"by": by, "costs": told})
    elif found:
        columns = [
            Column(by, may_cut=True, keeps_end=True),
            Column("jobs", right=True),
            Column("worker time", right=True),
            Column("share", right=True),
        ]
        if price is not None:
            columns.append(Column("price", right=True))
        rows = []
        for each in found:
            row = [
                each.name if each.name is not None else "(others)",
                f"{each.jobs:,}",
                duration(each.worker_seconds),
                report.percent(each.worker_seconds / total),
            ]
            if price is not None:
                row.append(f"{each.price(price):,.2f}")
            rows.append(row)
        out.table(columns, rows)
        if price is None:
            out.note("With PGQUEUE['WORKER_HOUR_PRICE'], there are prices.")
    return _told(found, out, NOTHING)


def _told(found: object, out: Output, otherwise: str) -> int:
    if not found and not out.as_json:
        out.line(otherwise)
    return EXIT_DONE if found else EXIT_NOTHING


REPORTS: dict[str, Callable[[Cursor, dict[str, Any], Settings, Output], int]] = {
    "capacity": _capacity,
    "objectives": _objectives,
    "durations": _durations,
    "costs": _costs,
}
