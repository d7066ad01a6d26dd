"""
pgqueue show: all that is known of one job, wherever it is.

Columns of JSON are fetched as text: PostgreSQL stores JSON that Python cannot read, and
such a job is just the one that somebody wants to look at.
"""

from __future__ import annotations

import json
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast, Now

from django_pgqueue.conf import get_settings
from django_pgqueue.management.cli.output import EXIT_DONE, EXIT_NOTHING, Output
from django_pgqueue.management.cli.words import job_id
from django_pgqueue.models import ArchivedJob, DeadLetter, Job, Schedule
from django_pgqueue.models.job import LiveState, live_state
from django_pgqueue.operators.human import (
    HEADER,
    exact,
    log_lines,
    reprocessed_at,
    shown,
)
from django_pgqueue.operators.lanes import kind_of_job, why_it_waits
from django_pgqueue.operators.paging import in_order
from django_pgqueue.redaction.values import redact
from django_pgqueue.tasks import database
from django_pgqueue.tasks.redact import redact_job

HELP = "Show all of one job: arguments, times, worker, and the errors of each attempt."

# Characters of one payload that a terminal is shown; --json has all of it.
CHARACTERS_MAX = 10_000

# A payload up to this length stands in one line.
LINE_CHARACTERS_MAX = 60

# A row that moves between two looks is found by the second.
LOOKS = 3

JSON_COLUMNS = ("args", "kwargs", "headers", "errors", "progress", "result")

# A stored JSON value that Python cannot read.
UNREADABLE = "[JSON that Python cannot read; --show-payload shows its text]"


def add_arguments(parser: Any) -> None:
    """Declare which job, and how much of it."""
    parser.add_argument("id", type=job_id, metavar="ID")
    parser.add_argument(
        "--show-payload",
        action="store_true",
        help="Show values that PGQUEUE['REDACT'] hides, as they are stored.",
    )


def run(options: dict[str, Any], out: Output) -> int:
    """Print the job."""
    row = _read(options["id"])
    if row is None:
        if out.as_json:
            out.json({"job": None})
        else:
            out.line(
                f"There is no job {options['id']}: it never committed, or its "
                f"retention has passed."
            )
        return EXIT_NOTHING
    told = _decoded(row, in_full=options["show_payload"])
    told["waits"] = _why(row)
    if out.as_json:
        del told["clock"]
        out.json({"job": told})
    else:
        _print(told, out)
    return EXIT_DONE


def _read(wanted: int) -> dict[str, Any] | None:
    alias = get_settings().database
    for _ in range(LOOKS):
        for model in (Job, DeadLetter, ArchivedJob):
            found = _row(model.objects.using(alias), wanted)
            if found is not None:
                return found
    return None


def _row(rows: Any, wanted: int) -> dict[str, Any] | None:
    names = [field.attname for field in rows.model._meta.concrete_fields]
    texts = {
        f"{name}_text": Cast(name, TextField())
        for name in JSON_COLUMNS
        if name in names
    }
    plain = [name for name in names if name not in JSON_COLUMNS]
    if rows.model is Job:
        rows, plain = rows.annotate(state=live_state()), [*plain, "state"]
    found = rows.filter(id=wanted).annotate(clock=Now(), **texts)
    row: dict[str, Any] | None = found.values(*plain, "clock", *texts).first()
    if row is not None:
        row.setdefault("state", "dead")
    return row


def _why(row: dict[str, Any]) -> str | None:
    """Return why the job is parked; None: it is not, or just no more."""
    if row["state"] != LiveState.PARKED or row["lane"] is None:
        return None
    with in_order(), database.cursor() as cursor:
        return why_it_waits(cursor, row["id"])


def _decoded(row: dict[str, Any], *, in_full: bool) -> dict[str, Any]:
    """Return the row with its JSON read, and redacted unless asked for *in_full*."""
    told = {name: value for name, value in row.items() if not name.endswith("_text")}
    unreadable = []
    for name in JSON_COLUMNS:
        text = row.get(f"{name}_text")
        try:
            told[name] = None if text is None else _read_json(text)
        except (ValueError, RecursionError):
            told[name] = text if in_full else UNREADABLE
            unreadable.append(name)
    if unreadable:
        told["unreadable"] = unreadable
    if not in_full:
        settings = get_settings()
        args, kwargs = told["args"], told["kwargs"]
        told["args"], told["kwargs"] = redact_job(args, kwargs, row["task"], settings)
        for name in ("headers", "progress", "result"):
            told[name] = redact(told[name], settings.redact)
        told["errors"] = redact(told["errors"], settings.redact)
    return told


def _read_json(text: str) -> Any:
    value = json.loads(text)
    json.dumps(value, indent=2)  # Too deep to be written is unreadable too.
    return value


def _print(told: dict[str, Any], out: Output) -> None:
    reason = f" ({told['reason']})" if "reason" in told else ""
    alone = ""
    if told["state"] == "ready" and told["runs_alone"]:
        alone = ", and waits to run alone"
    why = "" if told["waits"] is None else f": {shown(told['waits'])}"
    out.line(
        f"Job {told['id']} is {told['state']}{alone}{reason}{why}{_set_aside(told)}"
    )
    out.facts(_facts(told))
    for name in ("args", "kwargs", "headers", "progress", "result"):
        if told[name] is not None:
            _print_payload(name, told, out)
    errors = told["errors"]
    if not isinstance(errors, list):
        _print_payload("errors", told, out)
        return
    for number, entry in enumerate(errors, start=1):
        out.line()
        _print_error(number, len(errors), entry, out)


def _set_aside(told: dict[str, Any]) -> str:
    """Return how a cancelled job had given up before, which a workflow goes by."""
    errors = told["errors"]
    last = errors[-1] if isinstance(errors, list) and errors else None
    if told["state"] != "cancelled" or not isinstance(last, dict):
        return ""
    if last.get("kind") != "set_aside":
        return ""
    by = f" by {shown(last['by'])}" if last.get("by") else ""
    return f": dead ({shown(last.get('dead_for'))}), and set aside{by}"


def _facts(told: dict[str, Any]) -> dict[str, object]:
    clock = told["clock"]
    times = {
        label: exact(told.get(name), clock)
        for label, name in (
            ("enqueued", "enqueued_at"),
            ("asked for", "run_after"),
            ("visible", "visible_at"),
            ("leased", "leased_at"),
            ("started", "started_at"),
            ("finished", "finished_at"),
            ("expires", "expires_at"),
            ("cancel asked", "cancel_requested_at"),
        )
    }
    headers = told["headers"]
    by_rule = headers.get(HEADER) if isinstance(headers, dict) else None
    links = {
        name.removesuffix("_id"): told[name]
        for name in ("workflow_id", "parent_id", "message_id")
    }
    crashes = f", {told['crashes']} crashes" if told["crashes"] else ""
    said = told["lane_capacity"], told["lane_spacing"], told["lane_policy"]
    lane, of_lane = (
        told["lane"],
        kind_of_job(told["lane"], told["task"], *said),
    )
    return {
        "task": told["task"],
        "queue": told["queue"],
        "priority": told["priority"] or None,
        "attempt": f"{told['attempt']} of {told['max_attempts']}, "
        f"delivery {told['deliveries']}{crashes}",
        **times,
        "reprocessed": exact(reprocessed_at(by_rule), clock),
        "worker": told.get("leased_by") or told.get("worker"),
        "runs alone": "yes: its process died" if told.get("runs_alone") else None,
        "dedup key": told["dedup_key"],
        # Of a job that has it while it waits, and not while it runs.
        "waiting key": told.get("queued_key"),
        "accumulate key": told["accumulate_key"] or None,
        "lane": None if lane is None else f"{lane}, {of_lane}",
        **links,
        "schedule": _schedule(told["schedule_id"]),
    }


def _schedule(key: int | None) -> str | None:
    """Return the name of a job's schedule, by which `pgqueue schedules` knows it."""
    if key is None:
        return None
    rows = Schedule.objects.using(get_settings().database).filter(pk=key)
    return rows.values_list("name", flat=True).first() or f"{key}, which is deleted"


def _print_payload(name: str, told: dict[str, Any], out: Output) -> None:
    value, is_raw = told[name], name in told.get("unreadable", ())
    text = value if is_raw else json.dumps(value, ensure_ascii=False)
    if len(text) <= LINE_CHARACTERS_MAX:
        out.line(f"  {name:<8} {shown(text)}")
        return
    out.line(f"  {name}")
    if not is_raw:
        text = json.dumps(value, ensure_ascii=False, indent=2)
    out.block(text[:CHARACTERS_MAX], indent="    ")
    if len(text) > CHARACTERS_MAX:
        left = len(text) - CHARACTERS_MAX
        out.line(f"    … {left:,} more characters; --json shows all of it")


def _print_error(number: int, count: int, entry: Any, out: Output) -> None:
    if not isinstance(entry, dict):
        out.line(f"Error {number} of {count}")
        out.block(json.dumps(entry, ensure_ascii=False))
        return
    facts = [
        f"{name} {entry[name]}"
        for name in ("attempt", "delivery", "at", "worker", "by")
        if entry.get(name) is not None
    ]
    what = entry.get("type") or entry.get("kind") or "?"
    out.line(shown(f"Error {number} of {count}: {what}"))
    if facts:
        out.block(", ".join(facts))
    # A traceback ends with the type and the message.
    out.block(str(entry.get("traceback") or entry.get("message") or "").rstrip("\n"))
    out.block("\n".join(log_lines(entry.get("log"))))
