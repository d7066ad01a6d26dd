"""Acting: pgqueue retry, redrive, purge and cancel, on ids or on filters; and acts.

Jobs named by their ids are changed at once. A filter starts a bulk act, after its jobs
were counted and confirmed: this process does its chunks, and the leader helps and
finishes it if this process dies. Ctrl+C stops it between two chunks.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.core.management.base import CommandError

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import did_you_mean
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    EXIT_USAGE,
    Output,
    Subcommand,
)
from django_pgqueue.management.cli.rows import filters_of
from django_pgqueue.management.cli.words import (
    add_actions,
    add_filters,
    add_force,
    check_is_known,
    job_id,
    live_state,
    queue_name,
    rows_count,
)
from django_pgqueue.models import BulkAct
from django_pgqueue.models.bulk_act import OPEN, BulkState, BulkVerb
from django_pgqueue.models.job import LiveState
from django_pgqueue.operators import bulk_acts
from django_pgqueue.operators.bulk_acts import CHUNK_ROWS, VERBS
from django_pgqueue.operators.human import age, count, shown
from django_pgqueue.queues.dead_letters import holders
from django_pgqueue.queues.find import find
from django_pgqueue.queues.stats import queue_stats
from django_pgqueue.schedules.store import database_now
from django_pgqueue.tasks import database, operate
from django_pgqueue.tasks.operate import BY_CHARACTERS_MAX
from django_pgqueue.tasks.registry import declared_names

# Ids that were named and not done are explained up to here.
EXPLAINED_MAX = 20

# How long to wait for a chunk that is not due yet, or that the leader is doing.
WAIT_SECONDS = 0.1


def add_pace(parser: Any) -> None:
    """Declare how fast a subcommand goes on."""
    parser.add_argument(
        "--per-second",
        type=rows_count,
        metavar="N",
        help="So many a second at most (default: as fast as it goes).",
    )


def _add_selection(parser: Any, *filters: str) -> None:
    """Declare the ways to say which jobs are included."""
    parser.add_argument("ids", nargs="*", type=job_id, metavar="ID", help="Jobs by id.")
    parser.add_argument(
        "--all", action="store_true", help="All of them, without a filter."
    )
    parser.add_argument(
        "--yes", "-y", action="store_true", help="Do not ask before acting on a filter."
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="Count them, and do nothing."
    )
    add_filters(parser, *filters)


def _act(name: str, options: dict[str, Any], out: Output) -> int:
    """
    Do the verb *name* to the jobs that the command line names; return the exit status.

    Raises:
        CommandError: It names none or too many, or nobody can be asked; status 2.
    """
    filters, ids = filters_of(options), list(dict.fromkeys(options["ids"]))
    if bool(ids) + bool(filters or options["all"]) != 1:
        raise CommandError(
            f"Say which jobs to {VERBS[name].word}: ids, filters such as --queue, or "
            f"--all.",
            returncode=EXIT_USAGE,
        )
    pace = options.get("per_second")
    if ids and pace:
        raise CommandError("--per-second goes with filters.", returncode=EXIT_USAGE)
    given = {**filters, "to": options.get("to")}
    if ids:
        return _act_on_ids(name, ids, given, options, out)
    asked = bulk_acts.asked_of(name, given)
    extent = bulk_acts.count(name, asked)
    if not (extent.rows or out.as_json):
        suggest(out, **filters)
    if options["dry_run"] or not (extent.rows or extent.is_more):
        return _answer(name, extent.rows, 0, out, dry_run=options["dry_run"])
    how_many = counted(extent.rows)
    if extent.is_more:
        how_many = f"more than {how_many}"
    question = f"{VERBS[name].word.capitalize()} {how_many}?"
    what = f"{how_many} would be {VERBS[name].done}"
    if not options["yes"] and not out.confirms(what, question):
        out.note("Nothing was done.")
        return EXIT_NOTHING
    act = operate.begin_act(name, asked, extent, by=operator_name(), per_second=pace)
    row = _follow(act, name, out)
    if row.error:
        out.note(shown(row.error))
    status = _answer(name, row.done, row.passed, out, act=act)
    if row.state == BulkState.DONE:
        return status
    how = "failed" if row.state == BulkState.FAILED else "was stopped"
    out.note(f"Bulk act {act} {how} before its end.")
    return EXIT_NOTHING


def _act_on_ids(
    name: str,
    ids: list[int],
    given: dict[str, Any],
    options: dict[str, Any],
    out: Output,
) -> int:
    if options["dry_run"]:
        with database.cursor() as cursor:
            known = find(cursor, ids)
        states = VERBS[name].states
        done = [job for job in ids if job in known and known[job].status in states]
    else:
        row = BulkAct(verb=name, filters=given, asked_by=operator_name())
        chunks = (ids[at : at + CHUNK_ROWS] for at in range(0, len(ids), CHUNK_ROWS))
        done = [job for chunk in chunks for job in VERBS[name].run(row, chunk)]
    passed_over = [job for job in ids if job not in set(done)]
    status = _answer(name, done, passed_over, out, dry_run=options["dry_run"])
    if not out.as_json:
        _explain(passed_over, VERBS[name].done, out, is_dry=options["dry_run"])
    return status


def _follow(act: int, name: str, out: Output) -> BulkAct:
    """Do the chunks of an act, and show how far it is; Ctrl+C stops it."""
    row = BulkAct.objects.using(get_settings().database).get(pk=act)
    try:
        while row.state in OPEN:
            out.progress(f"{row.done:,} of {row.counted:,} {VERBS[name].done}")
            if not bulk_acts.step(act):
                time.sleep(WAIT_SECONDS)
            row.refresh_from_db()
    except KeyboardInterrupt:
        operate.stop_act(act, by=operator_name())
        out.end_progress()
        out.note(f"Interrupted: bulk act {act} was stopped; what is done stays done.")
        raise
    finally:
        out.end_progress()
    return row


def _answer(
    name: str, done: Any, passed_over: Any, out: Output, **details: object
) -> int:
    """Say what was done, by ids or as numbers; return the exit status."""
    verb, is_dry = VERBS[name], details.get("dry_run")
    if out.as_json:
        told = {key: value for key, value in details.items() if value}
        out.json({verb.done: done, "passed_over": passed_over, **told})
    else:
        number = done if isinstance(done, int) else len(done)
        would_be = "would be " if is_dry else ""
        out.line(f"{counted(number)} {would_be}{verb.done}.")
        if done and name == BulkVerb.CANCEL and not is_dry:
            out.note("Those that run were asked to stop; each task decides when.")
    return EXIT_DONE if done and not passed_over else EXIT_NOTHING


def _explain(ids: Sequence[int], done: str, out: Output, *, is_dry: bool) -> None:
    """Say of each job why nothing was done to it."""
    if not ids:
        return
    was_not = "would not be" if is_dry else "was not"
    with database.cursor() as cursor:
        found = find(cursor, ids[:EXPLAINED_MAX])
        holder_of = holders(cursor, ids[:EXPLAINED_MAX])
    for job in ids[:EXPLAINED_MAX]:
        state = found[job].status if job in found else None
        why = "there is no such job" if state is None else f"it is {state}"
        if state == "dead" and job in holder_of:
            why += f", and job {holder_of[job]} has its dedup key"
        out.note(f"Job {job} {was_not} {done}: {why}.")
    if len(ids) > EXPLAINED_MAX:
        out.note(f"And {len(ids) - EXPLAINED_MAX:,} more.")


def suggest(
    out: Output, *, queue: str | None = None, task: str | None = None, **_others: Any
) -> None:
    """Say which name was meant, where a filter names what nothing has."""
    if queue is not None:
        with database.cursor() as cursor:
            names = [row.name for row in queue_stats(cursor, count_max=1)]
        if queue not in names:
            near = did_you_mean(queue, names)
            out.note(f"No queue is called {queue!r}.{shown(near)}")
    if task is not None and task not in declared_names():
        near = did_you_mean(task, declared_names())
        out.note(f"No task is declared as {shown(task)!r}.{shown(near)}")


def operator_name() -> str:
    """Return who sits at this command line: ops@web-1 (command line)."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A container without an entry in /etc/passwd.
        user = f"uid {os.getuid()}"
    suffix = " (command line)"
    name = f"{user}@{socket.gethostname()}"
    return name[: BY_CHARACTERS_MAX - len(suffix)] + suffix


def counted(number: int) -> str:
    """Return "1 job" or "1,234 jobs"."""
    return f"{number:,} job{'' if number == 1 else 's'}"


OF_LETTERS = ("queue", "task", "tag", "reason", "error", "since", "age")


def _add_retry(parser: Any) -> None:
    _add_selection(parser, "queue", "task", "tag", "error")


def _add_redrive(parser: Any) -> None:
    _add_purge(parser)
    parser.add_argument(
        "--to",
        type=queue_name,
        metavar="QUEUE",
        help="Into this queue (default: the one that each came from).",
    )
    add_force(parser)


def _redrive(options: dict[str, Any], out: Output) -> int:
    check_is_known(options["to"], options)
    return _act(BulkVerb.REDRIVE, options, out)


def _add_purge(parser: Any) -> None:
    _add_selection(parser, *OF_LETTERS)
    add_pace(parser)


def _add_cancel(parser: Any) -> None:
    _add_selection(parser, "queue", "task", "tag")
    parser.add_argument(
        "--state",
        action="append",
        type=live_state,
        metavar="STATE",
        help=f"In this state; may be given again: {', '.join(LiveState.values)}.",
    )


RETRY = Subcommand(
    "Make waiting jobs due now; dead letters named by id are redriven.",
    _add_retry,
    partial(_act, BulkVerb.RETRY),
)
REDRIVE = Subcommand(
    "Send dead letters back to a queue, with the same id, from attempt 1 on.",
    _add_redrive,
    _redrive,
)
PURGE = Subcommand(
    "Delete dead letters for ever, with their arguments and errors.",
    _add_purge,
    partial(_act, BulkVerb.PURGE),
)
CANCEL = Subcommand(
    "Cancel jobs that wait, and ask jobs that run to stop.",
    _add_cancel,
    partial(_act, BulkVerb.CANCEL),
)

# Acts --------------------------------------------------------------------------------

LISTED_MAX = 50


def _add_acts(parser: Any) -> None:
    """Declare what is done with which act; without an action, list the latest."""
    actions = add_actions(
        parser,
        {
            "show": "How far this one is.",
            "stop": "End it between two chunks; what is done stays done.",
        },
    )
    for own in actions.values():
        own.add_argument("act", type=job_id, metavar="ID")


def _acts(options: dict[str, Any], out: Output) -> int:
    """List bulk acts, or show or stop one."""
    number: int = options.get("act", 0)
    if options.get("action") == "stop":
        is_done = operate.stop_act(number, by=operator_name())
        return out.answer(
            {"act": number, "stopped": is_done},
            is_done,
            f"Bulk act {number} is stopped; what is done stays done.",
            f"Bulk act {number} has ended, or does not exist.",
        )
    rows = BulkAct.objects.using(get_settings().database).order_by("-id")
    acts = list(rows.filter(pk=number) if number else rows[:LISTED_MAX])
    with database.cursor() as cursor:
        now = database_now(cursor)
    if out.as_json:
        out.json(
            {"acts": [{name: getattr(row, name) for name in JSON} for row in acts]}
        )
    elif acts:
        out.table([_act_row(row, now) for row in acts])
    else:
        out.line("There is no bulk act.")
    if number and acts and acts[0].error:
        out.note(shown(acts[0].error))
    return EXIT_NOTHING if number and not acts else EXIT_DONE


JSON = (
    *("id", "verb", "state", "done", "passed", "counted", "is_more", "position"),
    *("top", "asked_by", "reason", "per_second", "created_at", "ended_at"),
)


def _act_row(row: Any, now: Any) -> dict[str, object]:
    # The condition on payloads of a replay can contain a secret.
    filters = {name: row.filters[name] for name in row.filters if name != "where"}
    return {
        "act": row.pk,
        "what": row.get_verb_display(),
        "state": row.state,
        "done": f"{row.done:,}",
        "of": count(row.counted, is_more=row.is_more),
        "age": age((now - row.created_at).total_seconds()),
        "by": row.asked_by,
        "filters": ", ".join(f"{name}={value}" for name, value in filters.items())
        or "all",
    }


ACTS = Subcommand("List bulk acts and replays; show or stop one.", _add_acts, _acts)
