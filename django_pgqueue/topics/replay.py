"""
Replay: have a range of a topic's log once more, for somebody who exists.

    topic("clicks").replay(to="subscription:mail/clicks.*", since="2 days ago")

A range is looked at and counted by plan(); begin() stores it as a bulk act, which the
leader does a chunk at a time: step().
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import (
    MessagesLost,
    TopicError,
    did_you_mean,
    shown,
)
from django_pgqueue.log import groups, replay, seek, subscriptions
from django_pgqueue.log.groups import TopicRow
from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.replay import CHUNK_JOBS, Range
from django_pgqueue.log.start import EARLIEST, LATEST, Start
from django_pgqueue.models.bulk_act import PER_SECOND_MAX
from django_pgqueue.postgres.clock import server_now
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limited import limited
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues import bulk_acts as store
from django_pgqueue.queues.bulk_acts import HINT, Taken
from django_pgqueue.queues.fair import HINT as FAIR_HINT
from django_pgqueue.queues.lanes import HINT as LANES_HINT
from django_pgqueue.queues.pull import HINT as PULL_HINT
from django_pgqueue.tasks import database
from django_pgqueue.tasks.operate import checked_texts
from django_pgqueue.tasks.task import Task
from django_pgqueue.topics.subscribe import checked_where

VERB = "replay"

# Messages are counted up to here, and for so long, before somebody is asked.
COUNT_MAX, COUNT_SECONDS_MAX = 100_000, 5.0

# How long a statement of a chunk may take.
CHUNK_SECONDS = 600

Place = int | str | datetime | timedelta

WAYS_TO_SAY = (
    "write 'group:NAME', 'subscription:QUEUE/PATTERN', 'queue:NAME' of a pull queue, "
    "a Group, or the function of @subscribe or @consume"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What a replay would do.

    Attributes:
        into: Who gets the messages, as to= can be said.
        messages: How many were counted.
        is_more: Whether there may be more.
        first: When the first of those that were counted was published.
        last: When the last was.
    """

    range: Range
    into: str
    # The id up to which it has come before it begins, and the highest that is meant.
    position: int
    top: int
    messages: int
    is_more: bool
    first: datetime | None
    last: datetime | None
    at: datetime


class Progress(NamedTuple):
    """
    How far a replay is.

    Attributes:
        state: "waiting", "running", "done", "stopped" or "failed".
        done: How many messages have a job by now.
        counted: How many were meant, as far as they were counted.
        position: Everything up to this id is done.
        top: The id at which it ends.
        error: What went wrong; "": nothing.
    """

    state: str
    done: int
    counted: int
    position: int
    top: int
    error: str


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay that was asked for, by the number of its bulk act."""

    id: int

    def progress(self) -> Progress:
        """
        Return how far it is.

        Raises:
            TopicError: Its act has ended a month ago, and is deleted.
        """
        with database.cursor() as cursor:
            found = store.progress(cursor, self.id)
        if found is None:
            raise TopicError(f"There is no bulk act {self.id}: a month after its end.")
        return Progress(*found)

    def stop(self, *, by: str = "") -> bool:
        """End it between two chunks; what is done stays done. False: it has ended."""
        by, _ = checked_texts(by, "")
        with database.transaction() as (_connection, cursor):
            return store.stop(cursor, self.id, by=by)


def plan(
    topic: str,
    to: Any,
    *,
    since: Place,
    until: Place | None = None,
    where: Mapping[str, Any] | None = None,
) -> Plan:
    """
    Return what a replay would do, with its messages counted; nothing is changed.

    Args:
        topic: Whose log.
        to: Who gets the messages; see Topic.replay().
        since: As there.
        until: As there.
        where: As there.

    Raises:
        MessagesLost, TopicError: As there.
    """
    first = _place("since", since)
    last = None if until is None else _place("until", until)
    text = checked_where(where)
    with database.cursor() as cursor:
        row = groups.topic_of(cursor, topic, makes=False)
        at = server_now(cursor)
        into, of = _target(cursor, topic, to)
        bound = horizons(cursor).of(row.id)
        position, since_at = _begin(cursor, first, row, bound, at)
        top, until_at = _end(cursor, last, row, bound, at)
    meant = Range(
        **of,
        topic=topic,
        since=since_at,
        until=until_at,
        where=None if text is None else json.loads(text),
    )
    return _counted(meant, row, into, position, top, at)


def begin(
    plan: Plan, *, by: str = "", reason: str = "", per_second: int | None = None
) -> Replay:
    """
    Have a replay done by whoever leads the workers.

    Args:
        plan: As plan() returned it.
        by: Who asks; at most 150 characters.
        reason: Why; at most 2,000 characters.
        per_second: So many messages a second at most; None: as fast as it goes.

    Raises:
        InvalidOption: *by* or *reason* is too long, or no text that can be stored.
        TopicError: *per_second* is out of its range.
    """
    check_rate(per_second)
    by, reason = checked_texts(by, reason)
    said = {
        "topic": plan.range.topic,
        "into": plan.into,
        "after": plan.position,
        "since": plan.range.since and plan.range.since.isoformat(),
        "until": plan.range.until and plan.range.until.isoformat(),
        "where": plan.range.where,
    }
    with database.transaction() as (connection, cursor):
        act = store.create(
            cursor,
            verb=VERB,
            filters={name: value for name, value in said.items() if value is not None},
            by=by,
            reason=reason,
            per_second=per_second,
            counted=plan.messages,
            is_more=plan.is_more,
            top=plan.top,
            shown_at=plan.at,
            position=plan.position,
        )
        wake_after_commit(connection, HINT)
    return Replay(act)


class Done(NamedTuple):
    """What a chunk has come to."""

    jobs: int
    # Up to which id all was looked at.
    position: int
    # What went wrong; "": nothing.
    error: str


def step(connection: Any, cursor: Cursor, act: Taken) -> Done:
    """
    Make the jobs of the next messages of an act; the caller notes how far it is.

    Args:
        connection: Django's, with the transaction of the chunk.
        cursor: Of it.
        act: As store.take() returned it.

    Raises:
        TopicError: Nobody is there to get them any more.
    """
    said = act.filters
    topic = groups.topic_of(cursor, said["topic"], makes=False)
    into, of = _target(cursor, said["topic"], said["into"])
    meant = Range(
        **of,
        topic=said["topic"],
        since=_moment(said.get("since")),
        until=_moment(said.get("until")),
        where=said.get("where"),
    )
    limit(cursor, seconds=CHUNK_SECONDS, plans=Plans.IN_ORDER)
    done = replay.replay(
        cursor,
        meant,
        topic,
        act=act.id,
        position=act.position,
        top=act.top,
        jobs=min(act.per_second or CHUNK_JOBS, CHUNK_JOBS),
    )
    if done is None:
        raise TopicError(f"{into} is not there any more, or it is disabled.")
    if done.jobs > done.in_lanes:
        hint = PULL_HINT if meant.kind == "queue" else ""
        wake_after_commit(connection, f"{hint}{meant.queue}")
    if done.in_turn:
        wake_after_commit(connection, f"{FAIR_HINT}{meant.queue}")
    elif done.in_lanes:
        wake_after_commit(connection, LANES_HINT)
    error = ""
    if topic.removed_to > act.position:
        error = (
            f"Retention has removed messages up to the id {topic.removed_to:,} before "
            f"they were replayed."
        )
    return Done(done.jobs, done.position, error)


def receivers(cursor: Cursor, topic: str) -> list[str]:
    """Return who can get messages of a topic once more, as to= can be said."""
    subscribed = [_names(row)[-1] for row in _subscriptions(cursor, topic)]
    reading = [
        row.name
        for row in groups.find_all(cursor)
        if row.topic == topic and not row.is_pulled
    ]
    return [
        *(f"subscription:{each}" for each in subscribed),
        *(f"group:{each}" for each in reading),
        *(f"queue:{each}" for each in replay.pull_queues(cursor)),
    ]


def check_rate(per_second: object) -> None:
    """Raise TopicError unless so many messages a second can be asked for."""
    if per_second is None:
        return
    if (
        isinstance(per_second, bool)
        or not isinstance(per_second, int)
        or not 1 <= per_second <= PER_SECOND_MAX
    ):
        raise TopicError(
            f"rate={shown(per_second)}: it must be a whole number of messages a "
            f"second, from 1 to {PER_SECOND_MAX:,}."
        )


def _counted(
    of: Range, topic: TopicRow, into: str, position: int, top: int, at: datetime
) -> Plan:
    ends_at = time.monotonic() + COUNT_SECONDS_MAX
    messages, place = 0, position
    times: list[datetime] = []
    with (
        limited(get_settings().database, seconds=CHUNK_SECONDS, plans=Plans.IN_ORDER),
        database.cursor() as cursor,
    ):
        while place < top:
            found = replay.count(cursor, of, topic, position=place, top=top)
            messages, place = messages + found.messages, found.position
            times += [each for each in (found.first, found.last) if each is not None]
            if messages > COUNT_MAX or time.monotonic() >= ends_at:
                break
    return Plan(
        range=of,
        into=into,
        position=position,
        top=top,
        messages=messages,
        is_more=place < top,
        first=min(times, default=None),
        last=max(times, default=None),
        at=at,
    )


def _place(name: str, value: object) -> int | Start:
    """Return an id or a moment, checked; raise TopicError."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if value != LATEST and not isinstance(value, int):
        try:
            return Start.parse(value)
        except TopicError:
            pass
    raise TopicError(
        f"{name}={shown(value)}: write the id of a message, 'earliest', a datetime "
        f"that is over, or a duration such as '2 days ago'."
    )


def _begin(
    cursor: Cursor, said: int | Start, row: TopicRow, bound: int, at: datetime
) -> tuple[int, datetime | None]:
    """Return the id after which a range begins, and a time; raise as plan()."""
    if isinstance(said, int):
        seek.check_position(said - 1, row.removed_to, bound)
        return said - 1, None
    if said.text == EARLIEST:
        return row.removed_to, None
    moment = _moment_of(said, at)
    return seek.before(cursor, moment, row.removed_to, bound), moment


def _end(
    cursor: Cursor, said: int | Start | None, row: TopicRow, bound: int, at: datetime
) -> tuple[int, datetime | None]:
    """Return the id with which a range ends, and a time before which it does."""
    if said is None:
        return bound, None
    if isinstance(said, int):
        return min(said, bound), None
    if said.text == EARLIEST:
        return row.removed_to, None
    moment = _moment_of(said, at)
    # Ids follow times but for some seconds: so many are looked at besides.
    later = moment + 2 * timedelta(seconds=seek.DISORDER_SECONDS)
    try:
        return seek.before(cursor, later, row.removed_to, bound), moment
    except MessagesLost:
        return row.removed_to, moment


def _moment_of(said: Start, at: datetime) -> datetime:
    return datetime.fromisoformat(said.text) if said.ago is None else at - said.ago


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _target(cursor: Cursor, topic: str, to: Any) -> tuple[str, dict[str, Any]]:
    """Return who gets the messages, in words and as Range has it."""
    if isinstance(to, Task):
        names = {to.name, *to.aliases}
        return _only(cursor, topic, to.name, lambda row: row.task in names)
    kind, _, name = to.partition(":") if isinstance(to, str) else ("", "", "")
    if kind == "group":
        return _group(cursor, topic, name)
    if kind == "queue":
        return _queue(cursor, name)
    if kind == "subscription":
        return _only(cursor, topic, to, lambda row: name in _names(row))
    raise TopicError(f"to={shown(to)}: {WAYS_TO_SAY}.")


def _group(cursor: Cursor, topic: str, name: str) -> tuple[str, dict[str, Any]]:
    row = groups.find(cursor, topic, name)
    if row.is_pulled:
        raise TopicError(
            f"The group {row} has no task that could get a job for each message: let "
            f"it read again with seek(), or make another one that starts there."
        )
    of = {"kind": "group", "queue": row.queue, "name": name, "task": row.task}
    return f"group:{name}", of


def _queue(cursor: Cursor, name: str) -> tuple[str, dict[str, Any]]:
    known = replay.pull_queues(cursor)
    if name not in known:
        near = did_you_mean(name, known)
        raise TopicError(
            f"to='queue:{name}': no pull queue is called so, and workers run the jobs "
            f"of others: name their subscription.{near}"
        )
    of = {"kind": "queue", "queue": name, "name": name, "task": PULL_TASK}
    return f"queue:{name}", of


def _only(
    cursor: Cursor, topic: str, said: str, is_meant: Callable[[Any], bool]
) -> tuple[str, dict[str, Any]]:
    """Return the one subscription, or group, of a topic that is meant."""
    rows = _subscriptions(cursor, topic)
    found = [row for row in rows if is_meant(row)]
    read_by = [
        row
        for row in groups.find_all(cursor)
        if row.topic == topic and not said.startswith("subscription:") and is_meant(row)
    ]
    if len(read_by) == 1 and not found:
        return _group(cursor, topic, read_by[0].name)
    known = [f"subscription:{_names(row)[-1]}" for row in rows]
    if len(found) != 1 or read_by:
        what = "none" if not found else "several"
        near = did_you_mean(said, known) or f" It has {', '.join(known) or 'none'}."
        raise TopicError(
            f"to={said!r}: of the topic {topic!r} {what} is enabled that is called "
            f"so.{near} Or {WAYS_TO_SAY}."
        )
    (row,) = found
    of = {
        "kind": "subscription",
        "queue": row.queue,
        "name": row.pattern,
        "task": row.task,
    }
    return f"subscription:{_names(row)[-1]}", of


def _subscriptions(cursor: Cursor, topic: str) -> list[Any]:
    """Return those that are enabled and can want messages of a topic."""
    return [
        row
        for row in subscriptions.find_all(cursor)
        if row.topic in (None, topic) and row.disabled_at is None
    ]


def _names(row: Any) -> tuple[str, str]:
    """Return how a subscription may be called: the last one names no other."""
    return f"{row.queue}/{row.pattern}", f"{row.queue}/{row.pattern}/{row.task}"
