"""
Bulk acts: count everything that a filter matches, then act on it chunk by chunk.

Rows are visited in the order of their ids, up to the highest id at the confirmation,
each once: a job that dies again meanwhile keeps its id, which the act has passed by
then. A chunk, the position and the counts are one transaction, which keeps the row of
the act locked: a process that dies in the middle has done nothing of its chunk, no
other process does the same chunk, and a stop takes effect between two.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import Error, IntegrityError, OperationalError, connections
from django.db.models import Count, Max, Min, QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_pgqueue.conf import get_settings
from django_pgqueue.models import BulkAct, DeadLetter, Job
from django_pgqueue.models.bulk_act import OPEN, BulkState, BulkVerb
from django_pgqueue.models.columns import CLOCK
from django_pgqueue.models.job import LiveState, live_state
from django_pgqueue.operators.error_groups import at_place, letters_of
from django_pgqueue.operators.filters import JOBS, TIMES, narrow
from django_pgqueue.operators.paging import in_order, window_end, windows
from django_pgqueue.postgres.connect import Link
from django_pgqueue.queues import bulk_acts as store
from django_pgqueue.queues.bulk_acts import Chunk, Extent
from django_pgqueue.schedules.store import database_now
from django_pgqueue.tasks import database, operate

logger = logging.getLogger("django_pgqueue.worker")

# Rows of a chunk: they stay locked until it is done.
CHUNK_ROWS = 500

# Counting stops here, or after so long.
COUNT_MAX = 100_000
COUNT_SECONDS_MAX = 5.0

# How often the leader looks without a hint.
LOOK_SECONDS = 10.0

ERROR_CHARACTERS_MAX = 2_000

# A chunk that fails in the database is retried after so long, so many times in a row;
# other acts continue meanwhile.
TRIES_MAX = 10
TRY_SECONDS = 30.0

# Filters that no column answers: they need the rows themselves.
BY_READING: Mapping[str, Callable[[QuerySet[Any], str], list[int]]] = {
    "place": at_place,
    "kind": letters_of,
}

# The states that wait for a time, which a retry brings forward.
WAITING = frozenset({LiveState.SCHEDULED, LiveState.RETRYING})
DEAD = frozenset({"dead"})


@dataclass(frozen=True, slots=True)
class Verb:
    """
    What an act does to each row, and how people see it.

    Attributes:
        model: Of the rows.
        run: Does it to the rows with these ids; returns the ids that it was done to.
        states: Of a job that is named by its id; others are left alone.
        permission: The codename that starting and stopping it takes.
        word: "redrive", for questions.
        done: "redriven", for answers.
        title: In the admin.
        warning: What it means, shown before it is confirmed.
        is_grave: It cannot be undone.
    """

    model: type[Any]
    run: Callable[[BulkAct, list[int]], list[int]]
    states: Set[str]
    permission: str
    word: str
    done: str
    title: Any = ""
    warning: Any = ""
    is_grave: bool = False


def _cancel(act: BulkAct, ids: list[int]) -> list[int]:
    answer = operate.cancel(ids, by=act.asked_by)
    return [*answer.cancelled, *answer.requested]


# Of rows; a replay, which makes jobs of messages, is in topics/replay.py.
VERBS: Mapping[str, Verb] = {
    BulkVerb.REDRIVE: Verb(
        DeadLetter,
        lambda act, ids: operate.redrive(ids, queue=act.filters.get("to")),
        DEAD,
        *("retry", "redrive", "redriven"),
        _("Redrive all"),
        _(
            "They go back to their queues, with the same ids, from attempt 1 on. One "
            "whose dedup key a live job has stays a dead letter."
        ),
    ),
    BulkVerb.RETRY: Verb(
        Job,
        lambda act, ids: operate.retry(ids),
        WAITING | DEAD,
        *("retry", "retry", "retried"),
        _("Retry all now"),
        _(
            "They are made due at once, instead of waiting for their time; also those "
            "among them that fail, and wait, before a worker comes to them."
        ),
    ),
    BulkVerb.SET_ASIDE: Verb(
        DeadLetter,
        lambda act, ids: operate.set_aside(ids, by=act.asked_by, reason=act.reason),
        DEAD,
        *("cancel", "set aside", "set aside"),
        _("Set all aside"),
        _(
            "They go to the archive as cancelled, with your name and the reason, and "
            "are deleted with the archive. From there, they cannot be redriven."
        ),
        is_grave=True,
    ),
    BulkVerb.CANCEL: Verb(
        Job,
        _cancel,
        frozenset(LiveState.values),
        *("cancel", "cancel", "cancelled"),
        _("Cancel all"),
        _(
            "Jobs that wait go to the archive as cancelled, and never run. Jobs that "
            "run are asked to stop: a task ends by itself where it looks at "
            "context.cancelled, or at its next await."
        ),
        is_grave=True,
    ),
    BulkVerb.PURGE: Verb(
        DeadLetter,
        lambda act, ids: operate.delete_dead_letters(ids),
        DEAD,
        *("purge", "delete", "deleted"),
        is_grave=True,
    ),
}


def permission_of(verb: str) -> str:
    """Return the codename that starting and stopping an act takes."""
    return "seek" if verb == BulkVerb.REPLAY else VERBS[verb].permission


def asked_of(verb: str, filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return *filters* as an act stores them, with ages as times."""
    asked = {name: value for name, value in filters.items() if value}
    for name, value in asked.items():
        if isinstance(value, timedelta):
            with database.cursor() as cursor:
                asked[name] = (database_now(cursor) - value).isoformat()
        elif isinstance(value, datetime):
            asked[name] = value.isoformat()
    if verb == BulkVerb.RETRY:
        # As on the command line: scheduled jobs only where that is asked for.
        asked.setdefault("state", LiveState.RETRYING.value)
    return asked


def may_be_done(verb: str, asked: Mapping[str, Any]) -> bool:
    """Whether *verb* does anything to rows of the state that is asked for."""
    return verb != BulkVerb.RETRY or asked["state"] in WAITING


def matching(
    verb: str, asked: Mapping[str, Any], until: datetime | None = None
) -> QuerySet[Any]:
    """
    Return the matching rows, except for the filters of BY_READING.

    Args:
        verb: One of VERBS.
        asked: As asked_of() returned it; times may be texts.
        until: Dead letters that appeared later are left out. Jobs go by their ids
            alone: one that fails later, and waits then, is included in a retry.
    """
    model = VERBS[verb].model
    rows = model._default_manager.using(get_settings().database)
    if model is Job:
        rows = rows.annotate(state=live_state())
    elif until is not None:
        rows = rows.filter(finished_at__lte=until)
    by_column = {
        name: datetime.fromisoformat(value) if name in TIMES else value
        for name, value in asked.items()
        if name in JOBS
    }
    return narrow(rows, JOBS, by_column)


def find(
    rows: QuerySet[Any],
    asked: Mapping[str, Any],
    *,
    after: int,
    top: int,
    most: int = CHUNK_ROWS,
) -> tuple[list[int], int]:
    """
    Return the ids of the next of *rows*, and the id up to which was looked.

    Args:
        rows: As matching() returned them.
        asked: The same filters.
        after: The id up to which was looked before.
        top: The highest id that is included.
        most: How many to return; fewer where a look has gone through enough rows.
    """
    table = rows.model._default_manager.using(rows.db)
    end = window_end(rows, after, top)
    with in_order():
        window = rows.filter(id__gt=after, id__lte=end).order_by("id")
        ids = list(window.values_list("id", flat=True)[:most])
        position = ids[-1] if len(ids) == most else end
        for name, read in BY_READING.items():
            if ids and name in asked:
                ids = sorted(read(table.filter(pk__in=ids), asked[name]))
    return ids, position


def count(verb: str, asked: Mapping[str, Any]) -> Extent:
    """Count the matching rows, up to COUNT_MAX and COUNT_SECONDS_MAX."""
    with database.cursor() as cursor:
        at = database_now(cursor)
    rows = matching(verb, asked, at)
    table = rows.model._default_manager.using(rows.db)
    moment = "enqueued_at" if rows.model is Job else "finished_at"
    top = table.aggregate(top=Max("id"))["top"] or 0
    ends_at = time.monotonic() + COUNT_SECONDS_MAX
    total, is_more = 0, False
    times: list[datetime] = []
    for end, part in _parts(rows, asked, top):
        with in_order():
            seen = part.aggregate(n=Count("id"), low=Min(moment), high=Max(moment))
        total += seen["n"]
        times += [each for each in (seen["low"], seen["high"]) if each is not None]
        is_more = end < top and (total > COUNT_MAX or time.monotonic() >= ends_at)
        if is_more:
            break
    first, latest = (min(times), max(times)) if times else (None, None)
    return Extent(total, is_more, top, at, first, latest)


def _parts(
    rows: QuerySet[Any], asked: Mapping[str, Any], top: int
) -> Iterator[tuple[int, QuerySet[Any]]]:
    """Yield ids up to *top* with the matching rows below each."""
    if not any(name in asked for name in BY_READING):
        yield from windows(rows, top)
        return
    position = 0
    while position < top:
        ids, position = find(rows, asked, after=position, top=top)
        yield position, rows.filter(pk__in=ids)


def step(only: int | None = None) -> bool:
    """Do the chunk that is due, of this act or of any; False: none is due."""
    act = None
    due = _open_acts().filter(next_at__lte=Now()).order_by("next_at", "id")
    if only is not None:
        due = due.filter(pk=only)
    try:
        with database.transaction() as (connection, cursor):
            # Two processes that lead do chunks of two acts.
            act = due.select_for_update(skip_locked=True).first()
            if act is None:
                return False
            if act.verb == BulkVerb.REPLAY:
                from django_pgqueue.topics import replay

                chunk = replay.step(connection, cursor, act)
            else:
                chunk = _next_rows(act)
            _store(act, chunk)
    except Exception as error:
        if act is None:
            raise
        _note_failure(act.pk, error)
    return True


def _open_acts() -> QuerySet[BulkAct]:
    return BulkAct.objects.using(get_settings().database).filter(state__in=OPEN)


def _store(act: BulkAct, chunk: Chunk) -> None:
    """Store the result of a chunk in its transaction."""
    is_over = chunk.position >= act.top
    taken = chunk.done + chunk.passed
    pause = timedelta(seconds=taken / act.per_second if act.per_second else 0)
    _open_acts().filter(pk=act.pk).update(
        state=BulkState.DONE if is_over else BulkState.RUNNING,
        ended_at=CLOCK if is_over else None,
        started_at=act.started_at or Now(),
        # Not from the start of the statement: the chunk has taken its time.
        next_at=CLOCK + pause,
        position=chunk.position,
        done=act.done + chunk.done,
        passed=act.passed + chunk.passed,
        tries=0,
        # The error of a chunk that was tried again is of no interest any more.
        error=chunk.error or ("" if act.tries else act.error),
    )
    if is_over:
        logger.info("ended      bulk act=%d %s by=%s", act.pk, act.verb, act.asked_by)


def _note_failure(key: int, error: Exception) -> None:
    """Store why a chunk of an act failed, and end the act if that is permanent."""
    text = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]
    with database.transaction():
        act = _open_acts().filter(pk=key).select_for_update().first()
        if act is None:
            return
        act.tries += 1
        # Busy, locked, or away for a moment.
        is_passing = isinstance(error, OperationalError)
        is_over = act.tries >= (TRIES_MAX if is_passing else 1)
        _open_acts().filter(pk=key).update(
            state=BulkState.FAILED if is_over else act.state,
            ended_at=CLOCK if is_over else None,
            next_at=CLOCK + timedelta(seconds=TRY_SECONDS),
            tries=act.tries,
            error=text.replace("\x00", ""),
        )
    if is_over:
        logger.error("failed     bulk act=%d", key, exc_info=error)
    else:
        logger.warning("not done   bulk act=%d, tried again: %s", key, error)


def _next_rows(act: BulkAct) -> Chunk:
    most = min(act.per_second or CHUNK_ROWS, CHUNK_ROWS)
    rows = matching(act.verb, act.filters, act.shown_at)
    ids, position = find(rows, act.filters, after=act.position, top=act.top, most=most)
    done, error = _run(act, ids)
    return Chunk(position, done, len(ids) - done, error)


def _run(act: BulkAct, ids: list[int]) -> tuple[int, str]:
    """Return to how many it was done; a row that a queue refuses is left alone."""
    if not ids:
        return 0, ""
    try:
        return len(VERBS[act.verb].run(act, ids)), ""
    except IntegrityError as error:
        if len(ids) == 1:
            return 0, f"{ids[0]}: {str(error).splitlines()[0]}"[:ERROR_CHARACTERS_MAX]
    done, problem = 0, ""
    for each in ids:
        count, error_text = _run(act, [each])
        done, problem = done + count, error_text or problem
    return done, problem


class BulkActs:
    """A chore of the leader: does the chunks that are due, each act in its turn."""

    def __call__(self, link: Link) -> float:
        """Do a chunk, if one is due; return how many seconds until the next one."""
        with link.cursor() as cursor:
            due = store.due_seconds(cursor)
        if due is None or due > 0:
            connections.close_all()
            return LOOK_SECONDS if due is None else min(due, LOOK_SECONDS)
        try:
            if step():
                return 0.0
        except Error as error:
            connections.close_all()
            # As the other loops have it: one that is away is no news in detail.
            raise error.__cause__ or error from None
        # Somebody else leads, too, and does it.
        return 1.0
