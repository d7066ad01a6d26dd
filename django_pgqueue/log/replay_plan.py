"""
Replay plan: which ids of a log a replay means, and how many messages that are.

What is meant is fixed when it is looked at, by the horizon of that moment; the messages
are counted without a change.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django_pgqueue.exceptions import MessagesLost, TopicError, shown
from django_pgqueue.log import replay, seek
from django_pgqueue.log.groups import TopicRow
from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.replay import Range
from django_pgqueue.log.start import EARLIEST, LATEST, Start
from django_pgqueue.postgres.clock import server_now
from django_pgqueue.postgres.cursor import Cursor

# Messages are counted up to here, and for so long, before somebody is asked.
COUNT_MAX, COUNT_SECONDS_MAX = 100_000, 5.0


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
    topic: TopicRow
    into: str
    # The id up to which it has come before it begins, and the highest that is meant.
    position: int
    top: int
    at: datetime
    messages: int = 0
    is_more: bool = True
    first: datetime | None = None
    last: datetime | None = None

    @property
    def said(self) -> dict[str, Any]:
        """What its bulk act keeps, for whoever does it."""
        said = {
            "topic": self.range.topic,
            "into": self.into,
            "after": self.position,
            "since": self.range.since and self.range.since.isoformat(),
            "until": self.range.until and self.range.until.isoformat(),
            "where": self.range.where,
        }
        return {name: value for name, value in said.items() if value is not None}


def look(
    cursor: Cursor,
    topic: str,
    row: TopicRow,
    receiver: tuple[str, dict[str, Any]],
    *,
    since: int | Start,
    until: int | Start | None,
    where: str | None,
) -> Plan:
    """
    Return what a replay means, of which nothing is counted yet.

    Args:
        cursor: On the primary.
        topic: Whose log.
        row: As groups.topic_of() returned it.
        receiver: As receivers.find() returned it.
        since: As place() returned it.
        until: Likewise; None: what is published by now.
        where: JSON text of what a payload must contain; None: any.

    Raises:
        MessagesLost: It begins before what retention has left.
        TopicError: An id lies beyond what can be read.
    """
    into, of = receiver
    at = server_now(cursor)
    bound = horizons(cursor).of(row.id)
    position, since_at = _begin(cursor, since, row, bound, at)
    top, until_at = _end(cursor, until, row, bound, at)
    meant = Range(
        **of,
        topic=topic,
        since=since_at,
        until=until_at,
        where=None if where is None else json.loads(where),
    )
    return Plan(range=meant, topic=row, into=into, position=position, top=top, at=at)


def counted(cursor: Cursor, plan: Plan) -> Plan:
    """
    Return *plan* with its messages counted, of COUNT_MAX and some that are looked at.

    Args:
        cursor: With Plans.IN_ORDER of postgres/limits.py.
        plan: As look() returned it.
    """
    ends_at = time.monotonic() + COUNT_SECONDS_MAX
    messages, position = 0, plan.position
    times: list[datetime] = []
    while position < plan.top:
        found = replay.count(
            cursor, plan.range, plan.topic, position=position, top=plan.top
        )
        messages, position = messages + found.messages, found.position
        times += [each for each in (found.first, found.last) if each is not None]
        if messages > COUNT_MAX or time.monotonic() >= ends_at:
            break
    return replace(
        plan,
        messages=messages,
        is_more=position < plan.top,
        first=min(times, default=None),
        last=max(times, default=None),
    )


def place(name: str, value: object) -> int | Start:
    """
    Return where a range begins or ends, checked.

    Args:
        name: Of the argument, for the error.
        value: An id, "earliest", a moment that is over, or a duration until now.

    Raises:
        TopicError: It is none of these.
    """
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
    """Return the id after which a range begins, and a time; raise as look()."""
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
