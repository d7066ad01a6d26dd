"""pgqueue watch: look for what is wrong, and say it once; for any cron."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Column, Output
from django_pgqueue.operators.human import distance, in_utc
from django_pgqueue.queues import watch
from django_pgqueue.queues.watch import Alert
from django_pgqueue.tasks import database

HELP = "Look for what is wrong, and say what has changed since the last look."

COLUMNS = (
    Column("kind"),
    Column("subject", may_cut=True, keeps_end=True),
    Column("change"),
    Column("since"),
    Column("detail", may_cut=True),
)


def add_arguments(parser: Any) -> None:
    """Declare how much is told."""
    parser.add_argument(
        "--quiet",
        "-q",
        action="store_true",
        help="Print nothing where nothing has changed: cron then sends no mail.",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Look, and print what is wrong, and what is not any more."""
    with database.cursor() as cursor:
        changed = watch.look(cursor)
        standing = watch.standing(cursor)
        clock = watch.now(cursor)
    said = {(alert.kind, alert.subject) for alert in changed}
    others = [each for each in standing if (each.kind, each.subject) not in said]
    if out.as_json:
        out.json({"alerts": [_as_json(each) for each in (*changed, *others)]})
    elif changed or (others and not options["quiet"]):
        out.table(COLUMNS, [_row(each, clock) for each in (*changed, *others)])
    elif not options["quiet"]:
        out.line("Nothing is wrong that the watch looks for.")
    return EXIT_NOTHING if standing else EXIT_DONE


def _row(alert: Alert, clock: datetime) -> list[object]:
    return [
        alert.kind,
        alert.subject,
        alert.change,
        distance(alert.since, clock),
        alert.detail,
    ]


def _as_json(alert: Alert) -> dict[str, Any]:
    return {**alert._asdict(), "since": in_utc(alert.since)}
