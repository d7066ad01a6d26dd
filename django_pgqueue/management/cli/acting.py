"""Acting: pgqueue retry, redrive, purge and cancel, on ids or on filters.

Jobs are named by id or chosen by filters. Chosen ones are counted first, confirmed, and
taken in chunks, each a transaction of its own: a hundred thousand jobs hold no lock for
long, and Ctrl+C stops between two chunks.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.db.models import Max, QuerySet

from django_pgqueue.exceptions import did_you_mean
from django_pgqueue.management.cli.output import (
    EXIT_DONE,
    EXIT_NOTHING,
    EXIT_USAGE,
    Output,
    Subcommand,
)
from django_pgqueue.management.cli.rows import Filters, dead, live
from django_pgqueue.management.cli.words import (
    add_filters,
    add_force,
    check_is_known,
    job_id,
    live_state,
    queue_name,
    rows_count,
)
from django_pgqueue.models.job import LiveState
from django_pgqueue.operators.human import shown
from django_pgqueue.operators.paging import in_order, windows
from django_pgqueue.queues.dead_letters import holders
from django_pgqueue.queues.find import find
from django_pgqueue.queues.stats import queue_stats
from django_pgqueue.tasks import database, operate
from django_pgqueue.tasks.operate import BY_CHARACTERS_MAX
from django_pgqueue.tasks.registry import declared_names

CHUNK_ROWS = 500

# Jobs are counted up to here before an operator is asked.
COUNT_MAX = 100_000

# Ids that were named and not done are explained up to here.
EXPLAINED_MAX = 20


@dataclass(frozen=True, slots=True)
class Verb:
    """What a subcommand does to jobs."""

    word: str  # "redrive", for questions.
    done: str  # "redriven", for answers.
    act: Callable[[Sequence[int]], list[int]]  # Returns those that it was done to.
    # Of what a job that is named may be; None: as by filters.
    named: Callable[[], list[QuerySet[Any]]] | None = None


def add_selection(parser: Any) -> None:
    """Declare the ways to say which jobs are meant."""
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


def add_pace(parser: Any) -> None:
    """Declare how fast a subcommand goes on."""
    parser.add_argument(
        "--per-second",
        type=rows_count,
        metavar="N",
        help="So many a second at most (default: as fast as it goes).",
    )


def act(
    verb: Verb, chosen: QuerySet[Any], options: dict[str, Any], out: Output
) -> list[int] | None:
    """
    Do *verb* to the jobs that the command line means; return the ids it was done to.

    Args:
        verb: What to do.
        chosen: The rows that it could be done to, before filters.
        options: The command line.
        out: Where to ask and to show progress.

    Returns:
        None: The operator said no. With --dry-run, those that it would be done to.

    Raises:
        CommandError: It means none or too much, or cannot ask; status 2.
    """
    filters, ids = Filters.of(options), list(dict.fromkeys(options["ids"]))
    has_filter = not filters.is_empty
    if bool(ids) + (has_filter or options["all"]) != 1:
        raise CommandError(
            f"Say which jobs to {verb.word}: ids, filters such as --queue, or --all.",
            returncode=EXIT_USAGE,
        )
    pace = options.get("per_second")
    if options["dry_run"]:
        named = verb.named or (lambda: [chosen])
        pace, verb = None, replace(verb, act=lambda some: _found(named(), some))
    if ids:
        return _in_chunks(ids, verb, len(ids), out, pace)
    # What comes to match while we work is not what was counted.
    table = chosen.model._default_manager.using(chosen.db)
    top = table.aggregate(top=Max("id"))["top"] or 0
    rows, count = filters.apply(chosen), None
    if not (options["yes"] or options["dry_run"]):
        count = _count(rows, top, out)
        if count and not _is_confirmed(verb, count, out):
            return None
    if count == 0:
        return []
    return _in_chunks(_ids_of(rows, top), verb, count, out, pace)


def answer(
    verb: Verb, done: list[int] | None, options: dict[str, Any], out: Output
) -> int:
    """Say what was done; return the exit status."""
    asked = list(dict.fromkeys(options["ids"]))
    if done is None:
        out.note("Nothing was done.")
        return EXIT_NOTHING
    is_dry, done_ids = options["dry_run"], set(done)
    passed_over = [job for job in asked if job not in done_ids]
    if out.as_json:
        told = {"dry_run": True} if is_dry else {}
        out.json({verb.done: done, "passed_over": passed_over, **told})
    else:
        would_be = "would be " if is_dry else ""
        out.line(f"{counted(len(done))} {would_be}{verb.done}.")
        explain(passed_over, verb, out, "would not be" if is_dry else "was not")
        if not done and not asked:
            suggest(Filters.of(options), out)
    return EXIT_NOTHING if passed_over or not done else EXIT_DONE


def explain(
    ids: Sequence[int], verb: Verb, out: Output, was_not: str = "was not"
) -> None:
    """Say of each job why nothing was done to it."""
    if not ids:
        return
    with database.cursor() as cursor:
        found = find(cursor, ids[:EXPLAINED_MAX])
        holder_of = holders(cursor, ids[:EXPLAINED_MAX])
    for job in ids[:EXPLAINED_MAX]:
        state = found[job].status if job in found else None
        why = "there is no such job" if state is None else f"it is {state}"
        if state == "dead" and job in holder_of:
            why += f", and job {holder_of[job]} has its dedup key"
        out.note(f"Job {job} {was_not} {verb.done}: {why}.")
    if len(ids) > EXPLAINED_MAX:
        out.note(f"And {len(ids) - EXPLAINED_MAX:,} more.")


def suggest(filters: Filters, out: Output) -> None:
    """Say which name was meant, where a filter names what nothing has."""
    if filters.queue is not None:
        with database.cursor() as cursor:
            names = [queue.name for queue in queue_stats(cursor, count_max=1)]
        if filters.queue not in names:
            near = did_you_mean(filters.queue, names)
            out.note(f"No queue is called {filters.queue!r}.{shown(near)}")
    if filters.task is not None and filters.task not in declared_names():
        near = did_you_mean(filters.task, declared_names())
        out.note(f"No task is declared as {shown(filters.task)!r}.{shown(near)}")


def operator_name() -> str:
    """Return who sits at this command line: ops@web-1 (command line)."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A container without an entry in /etc/passwd.
        user = f"uid {os.getuid()}"
    suffix = " (command line)"
    name = f"{user}@{socket.gethostname()}"
    return name[: BY_CHARACTERS_MAX - len(suffix)] + suffix


def counted(count: int) -> str:
    """Return "1 job" or "1,234 jobs"."""
    return f"{count:,} job{'' if count == 1 else 's'}"


def _is_confirmed(verb: Verb, count: int, out: Output) -> bool:
    how_many = f"more than {COUNT_MAX:,} jobs" if count > COUNT_MAX else counted(count)
    question = f"{verb.word.capitalize()} {how_many}?"
    return out.confirms(f"{how_many} would be {verb.done}", question)


def _count(rows: QuerySet[Any], top: int, out: Output) -> int:
    """Return how many of *rows* have an id up to *top*; no further than COUNT_MAX."""
    count = 0
    for end, window in windows(rows, top):
        with in_order():
            count += window.count()
        out.progress(f"{count:,} found up to id {end:,} of {top:,}")
        if count > COUNT_MAX:
            break
    out.end_progress()
    return count


def _ids_of(rows: QuerySet[Any], top: int) -> Iterator[int]:
    for _end, window in windows(rows, top):
        with in_order():
            found = list(window.order_by("id").values_list("id", flat=True))
        yield from found


def _found(tables: Iterable[QuerySet[Any]], ids: Sequence[int]) -> list[int]:
    found = (rows.filter(pk__in=ids).values_list("pk", flat=True) for rows in tables)
    return [job for rows in found for job in rows]


def _in_chunks(
    ids: Iterable[int],
    verb: Verb,
    count: int | None,
    out: Output,
    per_second: int | None = None,
) -> list[int]:
    of = "" if count is None else f" of {count:,}"
    done: list[int] = []
    chunk: list[int] = []
    began, taken = time.monotonic(), 0
    rows = CHUNK_ROWS if per_second is None else min(per_second, CHUNK_ROWS)

    def flush() -> None:
        nonlocal taken
        if not chunk:
            return
        if per_second is not None:
            # What was taken before has its time first: the last chunk has none.
            time.sleep(max(began + taken / per_second - time.monotonic(), 0))
        done.extend(verb.act(chunk))
        taken += len(chunk)
        chunk.clear()
        out.progress(f"{len(done):,}{of} {verb.done}")

    try:
        for job in ids:
            chunk.append(job)
            if len(chunk) >= rows:
                flush()
        flush()
    except KeyboardInterrupt:
        out.end_progress()
        out.note(f"Interrupted: {counted(len(done))} {verb.done} until then.")
        raise
    finally:
        out.end_progress()
    return done


# Retry -------------------------------------------------------------------------------


def _add_retry(parser: Any) -> None:
    add_selection(parser)
    add_filters(parser, "queue", "task", "tag", "error")


def _retry(options: dict[str, Any], out: Output) -> int:
    """By filters, retry only what has failed and waits for its next attempt."""
    waiting = {"scheduled", "retrying"}
    verb = Verb("retry", "retried", operate.retry, lambda: [live(waiting), dead()])
    return answer(verb, act(verb, live({"retrying"}), options, out), options, out)


RETRY = Subcommand(
    "Make waiting jobs due now; dead letters named by id are redriven.",
    _add_retry,
    _retry,
)

# Redrive -----------------------------------------------------------------------------

OF_LETTERS = ("queue", "task", "tag", "reason", "error", "since", "age")


def _add_redrive(parser: Any) -> None:
    add_selection(parser)
    add_filters(parser, *OF_LETTERS)
    add_pace(parser)
    parser.add_argument(
        "--to",
        type=queue_name,
        metavar="QUEUE",
        help="Into this queue (default: the one that each came from).",
    )
    add_force(parser)


def _redrive(options: dict[str, Any], out: Output) -> int:
    check_is_known(options["to"], options)
    verb = Verb("redrive", "redriven", partial(operate.redrive, queue=options["to"]))
    return answer(verb, act(verb, dead(), options, out), options, out)


REDRIVE = Subcommand(
    "Send dead letters back to a queue, with the same id, from attempt 1 on.",
    _add_redrive,
    _redrive,
)

# Purge -------------------------------------------------------------------------------


def _add_purge(parser: Any) -> None:
    add_selection(parser)
    add_filters(parser, *OF_LETTERS)
    add_pace(parser)


def _purge(options: dict[str, Any], out: Output) -> int:
    verb = Verb("delete", "deleted", operate.delete_dead_letters)
    return answer(verb, act(verb, dead(), options, out), options, out)


PURGE = Subcommand(
    "Delete dead letters for ever, with their arguments and errors.",
    _add_purge,
    _purge,
)

# Cancel ------------------------------------------------------------------------------


def _add_cancel(parser: Any) -> None:
    add_selection(parser)
    add_filters(parser, "queue", "task", "tag")
    parser.add_argument(
        "--state",
        action="append",
        type=live_state,
        metavar="STATE",
        help=f"In this state; may be given again: {', '.join(LiveState.values)}.",
    )


def _cancel(options: dict[str, Any], out: Output) -> int:
    by, requested = operator_name(), list[int]()

    def cancel(ids: Any) -> list[int]:
        found = operate.cancel(ids, by=by)
        requested.extend(found.requested)
        return [*found.cancelled, *found.requested]

    verb = Verb("cancel", "cancelled", cancel)
    done = act(verb, live(Filters.of(options).states), options, out)
    if requested and not out.as_json:
        out.note(
            f"Of them, {counted(len(requested))} running: asked to stop; the task "
            f"decides when."
        )
    return answer(verb, done, options, out)


CANCEL = Subcommand(
    "Cancel jobs that wait, and ask jobs that run to stop.", _add_cancel, _cancel
)
