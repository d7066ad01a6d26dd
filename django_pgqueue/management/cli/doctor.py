"""pgqueue doctor and watch: look at everything that keeps jobs from running."""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
from collections import Counter
from datetime import datetime
from typing import Any

import django.db
import psycopg

from django_pgqueue.conf import Settings, get_settings
from django_pgqueue.findings import jobs, lanes, pipeline, server, topics
from django_pgqueue.findings.look import Look
from django_pgqueue.findings.registry import REGISTRY, SEVERITIES, Check, Finding
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    Output,
    Subcommand,
)
from django_pgqueue.operators.human import distance, in_utc, plural, shown
from django_pgqueue.postgres.connect import connect
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.queues import watch
from django_pgqueue.queues.watch import Alert
from django_pgqueue.tasks import database
from django_pgqueue.tasks.errors import check_engine

# Doctor -------------------------------------------------------------------------------


# All that there are.
CHAPTERS = (server, jobs, lanes, topics, pipeline)

# One statement may take so long.
STATEMENT_SECONDS_MAX = 10

LINE_COLUMNS_MAX = 100

# Most names of checks fit; a longer one makes room for itself.
CHECK_COLUMNS = 14


def _add_doctor(parser: Any) -> None:
    """Declare how much is told."""
    parser.add_argument(
        "--quiet", "-q", action="store_true", help="Leave out what is as it should be."
    )


def _doctor(options: dict[str, Any], out: Output) -> int:
    """Examine, and print what was found, the worst last."""
    findings = _examine(get_settings())
    counts = Counter(finding.severity for finding in findings)
    if options["quiet"]:
        findings = [finding for finding in findings if finding.severity != "ok"]
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    if out.as_json:
        out.json(
            {
                "findings": list(map(dataclasses.asdict, findings)),
                **{severity: counts[severity] for severity in SEVERITIES},
            }
        )
    else:
        names = [len(finding.check) for finding in findings]
        checks = max([CHECK_COLUMNS, *names])
        for finding in findings:
            _print_finding(finding, out, checks)
        out.line(
            f"{plural(counts['error'], 'error')}, "
            f"{plural(counts['warning'], 'warning')}, "
            f"{counts['ok']} as they should be."
        )
    return EXIT_NOTHING if counts["error"] else EXIT_DONE


def _examine(settings: Settings) -> list[Finding]:
    alias, found = settings.database, list[Finding]()
    check_engine(alias)
    try:
        connection = connect(alias, name="pgqueue doctor")
    except psycopg.Error as error:
        raise django.db.OperationalError(str(error)) from error
    with connection, connection.cursor() as cursor:
        look = Look(cursor)
        for check in sorted(REGISTRY.values(), key=lambda each: not each.is_fatal):
            found += _try(check, look)
            if check.is_fatal and found[-1].severity == "error":
                break  # The rest would fail for the same reason.
    return found


def _try(check: Check, look: Look) -> list[Finding]:
    """Ask for one finding; one that cannot be read is a finding too."""
    try:
        if not check.in_transaction:
            return check.examine(look)
        with look.cursor.connection.transaction():
            limit(look.cursor, seconds=STATEMENT_SECONDS_MAX, plans=Plans.IN_ORDER)
            return check.examine(look)
    except (psycopg.Error, django.db.Error) as error:
        if look.cursor.connection.closed:
            raise django.db.OperationalError(str(error)) from error
        detail = " ".join(str(error).split())
        return [
            Finding(
                check=check.name,
                severity="warning",
                what=f"It could not be examined: {detail}",
                way_out="Ask as a role that may see it, or try again.",
            )
        ]


def _print_finding(finding: Finding, out: Output, checks: int) -> None:
    columns = min(shutil.get_terminal_size().columns, LINE_COLUMNS_MAX)
    indent = " " * (checks + 10)
    room = max(columns - len(indent), 30)
    # A name with hyphens is copied as a whole.
    lines = textwrap.wrap(shown(finding.what), room, break_on_hyphens=False) or [""]
    if finding.way_out:
        lines += textwrap.wrap(
            f"-> {shown(finding.way_out)}",
            room,
            subsequent_indent="   ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    severity = out.styled(f"{finding.severity:<8}", finding.severity)
    out.line(f"{severity} {finding.check:<{checks}} {lines[0]}")
    for line in lines[1:]:
        out.line(f"{indent}{line}")


# Watch --------------------------------------------------------------------------------


def _add_watch(parser: Any) -> None:
    """Declare how much is told."""
    parser.add_argument(
        "--quiet",
        "-q",
        action="store_true",
        help="Print nothing where nothing has changed: cron then sends no mail.",
    )


def _watch(options: dict[str, Any], out: Output) -> int:
    """Look, and print what is wrong, and what is not any more."""
    with database.cursor() as cursor:
        changed = watch.look(cursor)
        standing = watch.standing(cursor)
        clock = watch.now(cursor)
    said = {(alert.kind, alert.subject) for alert in changed}
    others = [each for each in standing if (each.kind, each.subject) not in said]
    if out.as_json:
        out.json({"alerts": [_alert_as_json(each) for each in (*changed, *others)]})
    elif changed or (others and not options["quiet"]):
        out.table([_alert_row(each, clock) for each in (*changed, *others)])
    elif not options["quiet"]:
        out.line("Nothing is wrong that the watch looks for.")
    return EXIT_NOTHING if standing else EXIT_DONE


def _alert_row(alert: Alert, clock: datetime) -> dict[str, object]:
    return {
        "kind": alert.kind,
        "subject": alert.subject,
        "change": alert.change,
        "since": distance(alert.since, clock),
        "detail": alert.detail,
    }


def _alert_as_json(alert: Alert) -> dict[str, Any]:
    return {**alert._asdict(), "since": in_utc(alert.since)}


DOCTOR = Subcommand(
    "Examine server, schema, workers and jobs; say what is wrong and what to do.",
    _add_doctor,
    _doctor,
)

WATCH = Subcommand(
    "Look for what is wrong, and say what has changed since the last look.",
    _add_watch,
    _watch,
)
