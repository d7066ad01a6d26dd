"""
Bulk acts: everything that a filter means, counted, and then done chunk by chunk.

Rows are found in the order of their ids, up to the highest when it was confirmed, and
each once: what dies again meanwhile keeps its id, which is behind us by then, and a
dead letter of after the confirmation is not meant. A chunk, how far it is and its
counts are one transaction: whoever dies in the middle has done nothing of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import Error, IntegrityError, OperationalError, connections
from django.db.models import Count, Max, Min, QuerySet

from django_pgqueue.conf import get_settings
from django_pgqueue.models import DeadLetter, Job
from django_pgqueue.models.bulk_act import BulkVerb
from django_pgqueue.models.job import LiveState, live_state
from django_pgqueue.operators.error_groups import at_place, letters_of
from django_pgqueue.operators.filters import JOBS, TIMES, narrow
from django_pgqueue.operators.paging import in_order, window_end, windows
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues import bulk_acts as store
from django_pgqueue.queues.bulk_acts import HINT, Taken
from django_pgqueue.schedules.store import database_now
from django_pgqueue.tasks import database, operate

logger = logging.getLogger("django_pgqueue.worker")

# Rows of a chunk: what it changes is locked until it is done.
CHUNK_ROWS = 500

# Rows are counted up to here, and for so long, before somebody is asked.
COUNT_MAX = 100_000
COUNT_SECONDS_MAX = 5.0

# Without a hint, the leader looks so often.
LOOK_SECONDS = 10.0

ERROR_CHARACTERS_MAX = 2_000

# A chunk that the database does not do is tried again after so long, so many times in
# a row; other acts go on meanwhile.
TRIES_MAX = 10
TRY_SECONDS = 30.0

# What no column says is found in rows that were read.
BY_READING: Mapping[str, Callable[[QuerySet[Any], str], list[int]]] = {
    "place": at_place,
    "kind": letters_of,
}

# What can be made due: the states that wait for a time.
WAITING = (LiveState.SCHEDULED, LiveState.RETRYING)


@dataclass(frozen=True, slots=True)
class Verb:
    """What is done to the rows of a table."""

    model: type[Any]
    run: Callable[[Taken], Callable[[list[int]], list[int]]]


def _cancel(ids: list[int], *, by: str) -> list[int]:
    answer = operate.cancel(ids, by=by)
    return [*answer.cancelled, *answer.requested]


VERBS: Mapping[str, Verb] = {
    BulkVerb.REDRIVE: Verb(DeadLetter, lambda act: operate.redrive),
    BulkVerb.RETRY: Verb(Job, lambda act: operate.retry),
    BulkVerb.SET_ASIDE: Verb(
        DeadLetter,
        lambda act: partial(operate.set_aside, by=act.by, reason=act.reason),
    ),
    BulkVerb.CANCEL: Verb(Job, lambda act: partial(_cancel, by=act.by)),
}


@dataclass(frozen=True, slots=True)
class Found:
    """Some rows that are meant, and the id up to which was looked."""

    ids: list[int]
    position: int


@dataclass(frozen=True, slots=True)
class Counted:
    """
    How much a filter means.

    Attributes:
        rows: How many rows were counted.
        is_more: Whether there may be more.
        top: The highest id of the table.
        first: When the first of them gave up or was enqueued; None: there is none.
        latest: When the latest did.
        at: When they were counted, by the database; what gives up later is not meant.
    """

    rows: int
    is_more: bool
    top: int
    first: datetime | None
    latest: datetime | None
    at: datetime


def asked_of(verb: str, filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is meant by *filters*, of what *verb* can be done to."""
    asked = {name: value for name, value in filters.items() if value}
    if verb == BulkVerb.RETRY:
        # As on the command line: what is scheduled only where that is asked for.
        asked.setdefault("state", LiveState.RETRYING.value)
    return asked


def may_be_done(verb: str, asked: Mapping[str, Any]) -> bool:
    """Whether *verb* does anything to rows of the state that is asked for."""
    return verb != BulkVerb.RETRY or asked["state"] in WAITING


def chosen(
    verb: str, asked: Mapping[str, Any], until: datetime | None = None
) -> QuerySet[Any]:
    """
    Return the rows that are meant, but for the filters that are found by reading.

    Args:
        verb: One of VERBS.
        asked: As asked_of() returned it; times may be texts.
        until: What gave up later is not meant. Jobs go by their ids alone: one that
            fails later, and waits then, is meant by a retry.
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
        if name not in BY_READING
    }
    return narrow(rows, JOBS, by_column)


def find(
    rows: QuerySet[Any],
    asked: Mapping[str, Any],
    *,
    after: int,
    top: int,
    most: int = CHUNK_ROWS,
) -> Found:
    """
    Return the next of *rows*, in the order of their ids.

    Args:
        rows: As chosen() returned them.
        asked: The same filters.
        after: The id up to which was looked.
        top: The highest id that is meant.
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
    return Found(ids, position)


def count(verb: str, asked: Mapping[str, Any]) -> Counted:
    """Count what is meant, no further than COUNT_MAX, and not for long."""
    with database.cursor() as cursor:
        at = database_now(cursor)
    rows = chosen(verb, asked, at)
    table = rows.model._default_manager.using(rows.db)
    moment = "enqueued_at" if rows.model is Job else "finished_at"
    top = table.aggregate(top=Max("id"))["top"] or 0
    ends_at = time.monotonic() + COUNT_SECONDS_MAX
    total, is_more = 0, False
    times: list[datetime] = []
    for end, part in _parts(rows, asked, top):
        with in_order():
            told = part.aggregate(n=Count("id"), low=Min(moment), high=Max(moment))
        total += told["n"]
        times += [at for at in (told["low"], told["high"]) if at is not None]
        is_more = end < top and (total > COUNT_MAX or time.monotonic() >= ends_at)
        if is_more:
            break
    first, latest = (min(times), max(times)) if times else (None, None)
    return Counted(total, is_more, top, first, latest, at)


def first_rows(
    verb: str, asked: Mapping[str, Any], counted: Counted, most: int
) -> list[int]:
    """Return the ids of the first rows that were counted; looks not for long."""
    rows = chosen(verb, asked, counted.at)
    ends_at = time.monotonic() + COUNT_SECONDS_MAX
    ids: list[int] = []
    position, enough = 0, min(most, counted.rows)
    while len(ids) < enough and position < counted.top and time.monotonic() < ends_at:
        found = find(rows, asked, after=position, top=counted.top, most=CHUNK_ROWS)
        ids += found.ids
        position = found.position
    return ids[:most]


def _parts(
    rows: QuerySet[Any], asked: Mapping[str, Any], top: int
) -> Iterator[tuple[int, QuerySet[Any]]]:
    """Yield ids up to *top* with what is meant below each."""
    if not any(name in asked for name in BY_READING):
        yield from windows(rows, top)
        return
    position = 0
    while position < top:
        found = find(rows, asked, after=position, top=top)
        position = found.position
        yield position, rows.filter(pk__in=found.ids)


def begin(
    verb: str,
    asked: Mapping[str, Any],
    counted: Counted,
    *,
    by: str,
    reason: str = "",
    per_second: int | None = None,
) -> int:
    """
    Have *verb* done to all that is meant, by whoever leads; return the id of the act.

    Args:
        verb: One of VERBS.
        asked: As asked_of() returned it.
        counted: As count() returned it.
        by: Who asks; at most 150 characters.
        reason: Why; at most 2,000 characters.
        per_second: So many rows a second at most; None: as fast as it goes.

    Raises:
        InvalidOption: *by* or *reason* is too long, or no text that can be stored.
    """
    by, reason = operate.checked_texts(by, reason)
    with database.transaction() as (connection, cursor):
        act = store.create(
            cursor,
            verb=verb,
            filters=dict(asked),
            by=by,
            reason=reason,
            per_second=per_second,
            counted=counted.rows,
            is_more=counted.is_more,
            top=counted.top,
            shown_at=counted.at,
        )
        wake_after_commit(connection, HINT)
    return act


def stop(act: int, *, by: str) -> bool:
    """End an act between two chunks; False: it has ended."""
    with database.transaction() as (_connection, cursor):
        return store.stop(cursor, act, by=operate.checked_text("by", by, 150))


def step() -> bool:
    """Do the chunk that is due; False: none is."""
    act = None
    try:
        with database.transaction() as (connection, cursor):
            act = store.take(cursor)
            if act is None:
                return False
            if act.verb == BulkVerb.REPLAY:
                _replay(connection, cursor, act)
            else:
                _do(cursor, act)
    except Exception as error:
        if act is None:
            raise
        _note_failure(act.id, error)
    return True


def _note_failure(act: int, error: Exception) -> None:
    """Say on an act why its chunk was not done, and end it where that is for good."""
    text = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]
    # Busy, locked, or away for a moment. One that stays away cannot be told, either.
    is_passing = isinstance(error, OperationalError)
    with database.transaction() as (_connection, cursor):
        is_over = store.fail(
            cursor,
            act,
            text.replace("\x00", ""),
            tries_max=TRIES_MAX if is_passing else 1,
            pause=timedelta(seconds=TRY_SECONDS),
        )
    if is_over:
        logger.error("failed     bulk act=%d", act, exc_info=error)
    else:
        logger.warning("not done   bulk act=%d, tried again: %s", act, error)


def _do(cursor: Any, act: Taken) -> None:
    most = min(act.per_second or CHUNK_ROWS, CHUNK_ROWS)
    rows = chosen(act.verb, act.filters, act.shown_at)
    found = find(rows, act.filters, after=act.position, top=act.top, most=most)
    done, error = _run(VERBS[act.verb].run(act), found.ids)
    taken = len(found.ids)
    is_over = found.position >= act.top
    store.note(
        cursor,
        act.id,
        position=found.position,
        done=done,
        passed=taken - done,
        pause=timedelta(seconds=taken / act.per_second if act.per_second else 0),
        is_over=is_over,
        error=error,
    )
    if is_over:
        logger.info("ended      bulk act=%d %s by=%s", act.id, act.verb, act.by)


def _replay(connection: Any, cursor: Any, act: Taken) -> None:
    from django_pgqueue.topics import replay

    chunk = replay.step(connection, cursor, act)
    is_over = chunk.position >= act.top
    store.note(
        cursor,
        act.id,
        position=chunk.position,
        done=chunk.jobs,
        passed=0,
        pause=timedelta(seconds=chunk.jobs / act.per_second if act.per_second else 0),
        is_over=is_over,
        error=chunk.error,
    )
    if is_over:
        logger.info("ended      bulk act=%d %s by=%s", act.id, act.verb, act.by)


def _run(run: Callable[[list[int]], list[int]], ids: list[int]) -> tuple[int, str]:
    """Return of how many it was done to; a row that a queue refuses is left alone."""
    if not ids:
        return 0, ""
    try:
        return len(run(ids)), ""
    except IntegrityError as error:
        if len(ids) == 1:
            return 0, f"{ids[0]}: {str(error).splitlines()[0]}"[:ERROR_CHARACTERS_MAX]
    done, problem = 0, ""
    for each in ids:
        came, said = _run(run, [each])
        done, problem = done + came, said or problem
    return done, problem


class BulkActs:
    """A chore of the leader: does the chunks that are due, each act in its turn."""

    def __call__(self, link: Link) -> float:
        """Do a chunk, if one is due; return how many seconds until the next one."""
        with link.cursor() as cursor:
            due = store.due_seconds(cursor)
        if due is None or due > 0:
            self.leave()
            return LOOK_SECONDS if due is None else min(due, LOOK_SECONDS)
        try:
            if step():
                return 0.0
        except Error as error:
            self.leave()
            # As the other loops have it: one that is away is no news in detail.
            raise error.__cause__ or error from None
        # Somebody else leads, too, and does it.
        return 1.0

    def leave(self) -> None:
        """Close Django's connection of this thread, which is used for chunks alone."""
        connections[get_settings().database].close()
