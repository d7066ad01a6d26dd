"""
Operate: what a person does to jobs after they were enqueued.

The admin, the command line and JobResult share these functions. Each opens a
transaction on the database of the jobs (a savepoint, where one is open), moves rows by
the verbs of queues/, and wakes workers after the commit. Each passes over what somebody
else has locked or what is in another state by now, and returns what it did.

Rows stay locked until the caller's transaction ends, so call these at its end.
"""

from __future__ import annotations

import json
import operator
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django_pgqueue.bounds import TIME_MAX, TIME_MIN
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import (
    InvalidArgument,
    InvalidOption,
    JobNotFound,
    PayloadTooLarge,
    UnknownTask,
    WrongState,
    shown,
)
from django_pgqueue.options.checks import check_queue
from django_pgqueue.options.durations import DURATION_MAX
from django_pgqueue.postgres.apart import make_apart
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues import bulk_acts, dead_letters, lanes
from django_pgqueue.queues import cancel as cancels
from django_pgqueue.queues import dead_letters as redrives
from django_pgqueue.queues import edit as edits
from django_pgqueue.queues import pause as pauses
from django_pgqueue.queues.bulk_acts import Extent
from django_pgqueue.queues.cancel import ASK_AGAIN_SECONDS, CancelAnswer
from django_pgqueue.queues.edit import Editable
from django_pgqueue.queues.find import find
from django_pgqueue.tasks import database, payload
from django_pgqueue.tasks.raised import Reject
from django_pgqueue.tasks.registry import find_task, tasks

__all__ = [
    "CancelAnswer",
    "begin_act",
    "cancel",
    "delete_dead_letters",
    "edit",
    "key_holders",
    "pause",
    "redrive",
    "resume",
    "retry",
    "set_aside",
    "stop_act",
]

# The hint to workers that somebody is asked to stop; '!' is in no queue's name.
CANCEL_HINT = "!cancel"

# Characters of a user's name, as in Django's user model, and of a reason.
BY_CHARACTERS_MAX = 150
REASON_CHARACTERS_MAX = 2_000

ID_MAX = 2**63 - 1

# Violated when the archive has no partition for today.
CHECK_VIOLATION = "23514"

ENDED = frozenset({"succeeded", "cancelled", "expired"})
ENDED_PROBLEM = "it has ended; enqueue it anew with other arguments."
IN_USE = (
    "its arguments are in use. Cancel it, or edit it while it waits for its next "
    "attempt, or when it is a dead letter."
)

T = TypeVar("T")


def retry(ids: Iterable[int]) -> list[int]:
    """
    Make waiting jobs due now, and redrive dead letters; return those that will run.

    Jobs that are due, running, parked or archived are passed over, and so are dead
    letters whose dedup key a live job has: key_holders() names it.

    Raises:
        TypeError: An id is no int.
        IntegrityError: (Django's) the queue refuses a dead letter that was written by
            hand; nothing is done.
    """
    wanted = _checked_ids(ids)
    with database.transaction() as (connection, cursor):
        moved = redrives.retry_now(cursor, wanted)
        # Those that give up just now are found here.
        moved += redrives.redrive(cursor, wanted)
        _wake(connection, moved)
    return [job.id for job in moved]


def redrive(ids: Iterable[int], *, queue: str | None = None) -> list[int]:
    """
    Move dead letters back to their queues, or all of them to *queue*.

    One whose dedup key a live job has stays where it is: key_holders() names that job.

    Raises:
        InvalidOption: *queue* is no queue name.
        TypeError: An id is no int.
        IntegrityError: As retry().
    """
    wanted = _checked_ids(ids)
    if queue is not None:
        check_queue(queue)
    with database.transaction() as (connection, cursor):
        moved = redrives.redrive(cursor, wanted, queue=queue)
        _wake(connection, moved)
    return [job.id for job in moved]


def key_holders(ids: Iterable[int]) -> dict[int, int]:
    """
    Return which live job has the dedup key of which dead letter, of those in *ids*.

    These dead letters cannot be redriven until that job has ended.

    Raises:
        TypeError: An id is no int.
    """
    wanted = _checked_ids(ids)
    with database.transaction() as (_connection, cursor):
        return redrives.holders(cursor, wanted)


def cancel(ids: Iterable[int], *, by: str = "") -> CancelAnswer:
    """
    Archive jobs that do not run as cancelled, and ask those that run to stop.

    A job that runs goes on until its task looks: at its context, or, being async, at
    its next await. Jobs that have ended are passed over. Waits up to an eighth of a
    second for rows that somebody holds; what is still held is in ``locked``.

    Args:
        ids: Of jobs.
        by: Who cancels, for the errors of the jobs; at most 150 characters.

    Raises:
        InvalidOption: *by* is too long, or no text that can be stored.
        TypeError: An id is no int.
    """
    from django_pgqueue.queues.waited import tell_after_commit

    wanted = _checked_ids(ids)
    by = checked_text("by", by, BY_CHARACTERS_MAX)
    with database.transaction() as (connection, cursor):
        answer = _archive(
            connection, cursor, lambda: cancels.cancel(cursor, wanted, by=by)
        )
        if answer.requested:
            wake_after_commit(connection, CANCEL_HINT)
        for hint in lanes.freed_hints(answer.lanes):
            wake_after_commit(connection, hint)
        tell_after_commit(connection, answer.cancelled)
    return answer


def edit(
    job_id: int,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    by: str = "",
) -> None:
    """
    Give a waiting job or a dead letter other arguments.

    Where the task is declared, they are bound to its signature. Values may be those
    that a call would take, or as they are stored: ``{"__pgqueue__": "date", …}``.
    A job that has been delivered before gets another idempotency key by this.

    Where the lane of a declared task goes by its arguments, as it or its queue says,
    the job moves to that of the new ones, and keeps its id, which is its place in a
    group. One that is in another lane than its arguments say, since the call or
    somebody's SQL said so, stays where it is; so does a job of a task that is not
    declared here.

    Args:
        job_id: Of a job that is scheduled, ready, retrying or parked, or of a dead
            letter.
        args: All positional arguments; None: they stay.
        kwargs: All keyword arguments; None: they stay.
        by: Who edits, for the errors of the job; at most 150 characters.

    Raises:
        InvalidArgument: Neither is given, or they do not fit, cannot travel, or say
            no lane.
        InvalidOption: *by* is too long, or no text that can be stored.
        JobNotFound: No table holds the job.
        PayloadTooLarge: They exceed PGQUEUE['PAYLOAD_BYTES_MAX'].
        TypeError: The id is no int.
        WrongState: The job runs, has ended, or is locked by somebody just now.
    """
    if not _checked_ids([job_id]):
        raise JobNotFound(job_id)
    by = checked_text("by", by, BY_CHARACTERS_MAX)
    given = _given(job_id, args, kwargs)
    with database.transaction() as (connection, cursor):
        row = _locked(cursor, job_id)
        new_args, new_kwargs = _encoded(row, *given)
        move = _move(connection, row, new_args, new_kwargs)
        edits.edit(cursor, job_id, args=new_args, kwargs=new_kwargs, by=by)
        if move is not None:
            queue = edits.move(cursor, job_id, **move)
            _tell_lanes(connection, queue, {row.lane, move["lane"]})


def set_aside(ids: Iterable[int], *, by: str = "", reason: str = "") -> list[int]:
    """
    Move dead letters that nobody will fix to the archive, as cancelled.

    Args:
        ids: Of dead letters; others are passed over.
        by: Who sets them aside; at most 150 characters.
        reason: Why; at most 2,000 characters. Both are added to their errors.

    Raises:
        InvalidOption: *by* or *reason* is too long, or no text that can be stored.
        TypeError: An id is no int.
    """
    wanted = _checked_ids(ids)
    by, reason = checked_texts(by, reason)
    with database.transaction() as (connection, cursor):
        return _archive(
            connection,
            cursor,
            lambda: dead_letters.set_aside(cursor, wanted, by=by, reason=reason),
        )


def delete_dead_letters(ids: Iterable[int]) -> list[int]:
    """
    Delete dead letters for good; return those that went.

    Raises:
        TypeError: An id is no int.
    """
    wanted = _checked_ids(ids)
    with database.transaction() as (_connection, cursor):
        return dead_letters.delete(cursor, wanted)


def pause(
    queue: str,
    *,
    by: str = "",
    reason: str = "",
    until: datetime | timedelta | None = None,
) -> bool:
    """
    Let workers leave *queue* alone from their next poll on; what runs, runs on.

    Args:
        queue: A queue name; it need not have any job yet.
        by: Who pauses; at most 150 characters.
        reason: Why; at most 2,000 characters.
        until: When it ends by itself, with a zone, or how long it lasts.

    Returns:
        False if it was paused already, and who, why and until when stay as they are.

    Raises:
        InvalidOption: *queue* is no queue name, or a text is too long, or *until* is
            no time.
    """
    check_queue(queue)
    until = checked_until(until)
    by, reason = checked_texts(by, reason)
    with database.transaction() as (_connection, cursor):
        return pauses.pause(cursor, queue, by=by, reason=reason, until=until)


def resume(queue: str) -> bool:
    """
    End the pause of *queue*, and wake workers; False: it was not paused.

    Raises:
        InvalidOption: *queue* is no queue name.
    """
    check_queue(queue)
    with database.transaction() as (connection, cursor):
        was_paused = pauses.resume(cursor, queue)
        if was_paused:
            wake_after_commit(connection, queue)
        return was_paused


# Bulk acts ---------------------------------------------------------------------------


def begin_act(
    verb: str,
    filters: dict[str, Any],
    extent: Extent,
    *,
    by: str,
    reason: str = "",
    per_second: int | None = None,
) -> int:
    """
    Let the leader do *verb* to everything in a range; return the id of the act.

    Args:
        verb: One of models.bulk_act.BulkVerb.
        filters: What is included, and how it is done.
        extent: How much that is.
        by: Who asks; at most 150 characters.
        reason: Why; at most 2,000 characters.
        per_second: So many rows a second at most; None: as fast as possible.

    Raises:
        InvalidOption: *by* or *reason* is too long, or no text that can be stored.
    """
    by, reason = checked_texts(by, reason)
    with database.transaction() as (connection, cursor):
        act = bulk_acts.create(
            cursor, verb, filters, extent, by=by, reason=reason, per_second=per_second
        )
        wake_after_commit(connection, bulk_acts.HINT)
    return act


def stop_act(act: int, *, by: str) -> bool:
    """End an act between two chunks; False: it has ended."""
    from django_pgqueue.models.bulk_act import OPEN, BulkAct
    from django_pgqueue.models.columns import CLOCK

    by, _ = checked_texts(by, "")
    rows = BulkAct.objects.using(get_settings().database)
    # Waits for the chunk that is being done.
    ended = rows.filter(pk=act, state__in=OPEN)
    return bool(ended.update(state="stopped", stopped_by=by, ended_at=CLOCK))


# The transaction --------------------------------------------------------------------


def _archive(connection: Any, cursor: Cursor, move: Callable[[], T]) -> T:
    """Do *move*; where the archive has no day for it, make that and do it again."""
    from django.db import IntegrityError, transaction

    try:
        with transaction.atomic(using=connection.alias):
            return move()
    except IntegrityError as error:
        if getattr(error.__cause__, "sqlstate", None) != CHECK_VIOLATION:
            raise
        # Apart, since this transaction may go on for long; here where that fails.
        # A test's clock holds in the test's connection alone.
        made = make_apart(connection.alias, ARCHIVE.make)
        if not ARCHIVE.make(cursor) and not made:
            raise
    return move()


def _wake(connection: Any, moved: Iterable[redrives.Moved]) -> None:
    for name in redrives.hints(moved):
        wake_after_commit(connection, name, tells_age=name == lanes.HINT)


# What is asked for --------------------------------------------------------------------


def _checked_ids(ids: Iterable[int]) -> list[int]:
    """Return the ids that a job can have, each once, in their order."""
    if isinstance(ids, (str, bytes)):
        raise TypeError(f"ids must be ints, not the text {ids!r}")
    checked: dict[int, None] = {}
    for job_id in ids:
        if isinstance(job_id, bool):
            raise TypeError(f"ids must be ints, not {job_id!r}")
        try:
            number = operator.index(job_id)
        except TypeError:
            raise TypeError(
                f"ids must be ints, not {shown(job_id)}, a {type(job_id).__qualname__}"
            ) from None
        if 0 <= number <= ID_MAX:
            checked[number] = None
    return list(checked)


def checked_texts(by: str, reason: str) -> tuple[str, str]:
    """Return who does something and why, as checked_text() does."""
    return (
        checked_text("by", by, BY_CHARACTERS_MAX),
        checked_text("reason", reason, REASON_CHARACTERS_MAX),
    )


def checked_text(name: str, value: object, characters_max: int) -> str:
    """Return *value*, unless the database could not store it beside a job."""
    if not isinstance(value, str):
        raise InvalidOption(f"{name}={shown(value)}: it must be text.")
    if len(value) > characters_max:
        raise InvalidOption(
            f"{name} has {len(value):,} characters; the limit is {characters_max:,}."
        )
    try:
        payload.encode_value(value)
    except ValueError as error:
        raise InvalidOption(f"{name}: {error}.") from None
    return value


def checked_until(until: datetime | timedelta | None) -> datetime | timedelta | None:
    """Return when a pause ends, or how long it lasts, unless that cannot be."""
    if until is None:
        return None
    if isinstance(until, timedelta) and timedelta(0) < until <= DURATION_MAX:
        return until
    if (
        isinstance(until, datetime)
        and until.tzinfo is not None
        and TIME_MIN <= until <= TIME_MAX
    ):
        return until
    raise InvalidOption(
        f"until={shown(until)}: it must be a time with a zone, up to the year 9000, or "
        f"a length of time above zero, up to {DURATION_MAX.days} days."
    )


# Edit ---------------------------------------------------------------------------------


def _locked(cursor: Cursor, job_id: int) -> Editable:
    """Return the row, locked for this transaction; raise unless it may be edited."""
    pauses_left = list(ASK_AGAIN_SECONDS)
    while True:
        row = edits.lock(cursor, job_id)
        if row is not None and not row.is_leased:
            return row
        found = find(cursor, [job_id]).get(job_id)
        if found is None:
            raise JobNotFound(job_id)
        if row is not None:
            raise WrongState(job_id, "running", IN_USE)
        if found.status in ENDED:
            raise WrongState(job_id, found.status, ENDED_PROBLEM)
        if not pauses_left:
            problem = "somebody else holds its row just now; try again."
            raise WrongState(job_id, found.status, problem)
        time.sleep(pauses_left.pop(0))


def _revived(job_id: int, path: str, value: Any, depth: int = 0) -> Any:
    """
    Return *value* with what is written as it is stored turned into Python values.

    Done before the transaction: a model instance among them is fetched.
    """
    if depth > payload.DEPTH_MAX:
        return value  # Refused with its path when it is encoded.
    if isinstance(value, dict):
        if payload.TAG in value:
            return _untagged(job_id, path, value)
        return {
            key: _revived(job_id, f"{path}.{key}", item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            _revived(job_id, f"{path}[{place}]", item, depth + 1)
            for place, item in enumerate(value)
        ]
    return value


def _untagged(job_id: int, path: str, value: dict[str, Any]) -> Any:
    try:
        return payload.decode_value(payload.ENCODER.encode(value))
    except (Reject, TypeError, ValueError) as error:
        raise InvalidArgument(
            task=f"job {job_id}", path=path, problem=f"cannot be read: {error}"
        ) from None


def _given(
    job_id: int, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> tuple[list[Any] | None, dict[str, Any] | None]:
    """Return what is given as Python values; None for what is to stay."""
    name = f"job {job_id}"
    if args is None and kwargs is None:
        raise InvalidArgument(
            task=name,
            path="arguments",
            problem="are not given: pass args=…, kwargs=… or both",
        )
    payload.check_kinds(
        name, () if args is None else args, {} if kwargs is None else kwargs
    )
    return (
        None if args is None else _revived(job_id, "args", list(args)),
        None if kwargs is None else _revived(job_id, "kwargs", dict(kwargs)),
    )


def _encoded(
    row: Editable, args: list[Any] | None, kwargs: dict[str, Any] | None
) -> tuple[str, str]:
    """Return both parts as JSON text; the one that is not given as it is stored."""
    bytes_max = get_settings().payload_bytes_max
    whole: tuple[list[Any], dict[str, Any]] = (
        _stored(row, "args", row.args, list) if args is None else args,
        _stored(row, "kwargs", row.kwargs, dict) if kwargs is None else kwargs,
    )
    try:
        task = find_task(row.task)
    except UnknownTask:
        texts = payload.encode(row.task, *whole, payload_bytes_max=bytes_max)
    else:
        texts = task.encode(*whole, bytes_max)
        if task.resolve(row.queue, get_settings()).check_types:
            # What is not given may be there by reference, and was checked.
            task.check_types(args or (), kwargs or {}, get_settings())
    # What is not given was only looked at; it stays as it is stored, to the digit.
    parts = (
        row.args if args is None else texts[0],
        row.kwargs if kwargs is None else texts[1],
    )
    payload_bytes = sum(len(part.encode()) for part in parts)
    if payload_bytes > bytes_max:
        raise PayloadTooLarge(
            task=row.task, payload_bytes=payload_bytes, payload_bytes_max=bytes_max
        )
    return parts


def _move(
    connection: Any, row: Editable, args: str, kwargs: str
) -> dict[str, Any] | None:
    """Return the lane that the new arguments say; None: the job stays where it is."""
    from django.db import transaction

    from django_pgqueue.tasks.lanes import lane_in, lane_of_stored

    task = tasks.get(row.task)
    if task is None:
        return None
    lane = lane_in(task, task.options.lane, row.queue, get_settings())
    if lane is None:
        return None
    try:
        # The function that makes the key may ask the database, and fail there.
        with transaction.atomic(using=connection.alias):
            old = lane_of_stored(task, lane, row.args, row.kwargs)
    except InvalidArgument:
        return None
    if old != row.lane:
        return None
    new = lane_of_stored(task, lane, args, kwargs)
    if new == old:
        return None
    columns = dict.fromkeys(lane.columns) if new is None else lane.columns
    return {"lane": new, "columns": columns}


def _tell_lanes(connection: Any, queue: str | None, names: set[str | None]) -> None:
    """Tell workers of a job that has changed its lane; queue None: it is none."""
    if queue is None:
        return
    for hint in lanes.freed_hints(name for name in names if name is not None):
        wake_after_commit(connection, hint)
    if None in names:
        wake_after_commit(connection, queue)


def _stored(row: Editable, path: str, text: str, kind: type[T]) -> T:
    """Return what is stored, with None for what is no plain JSON: enough to bind it."""
    try:
        value = json.loads(
            text, object_hook=lambda item: None if payload.TAG in item else item
        )
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            task=row.task, path=path, problem=f"cannot be read: {error}; give it anew"
        ) from None
    if not isinstance(value, kind):
        raise InvalidArgument(
            task=row.task,
            path=path,
            problem=f"is stored as a {type(value).__qualname__}; give it anew",
        )
    return value
