"""
Start: with which message a subscription, or a group, begins.

    "latest"        what is published from now on
    "earliest"      all that the log has
    a datetime      what was published at that time or later
    "60 days ago"   likewise; or a timedelta, or a duration such as "60d"
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django_pgqueue.bounds import TIME_MAX, TIME_MIN
from django_pgqueue.exceptions import TopicError
from django_pgqueue.log.horizon import DRAWN
from django_pgqueue.postgres.cursor import Cursor, value

LATEST, EARLIEST = "latest", "earliest"

UNITS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
SHORT = {name[0]: unit for name, unit in UNITS.items()}
AGO = re.compile(r"(\d{1,9})(?:([smhdw])| ?(second|minute|hour|day|week)s?)(?: ago)?\Z")

AGO_MAX = timedelta(days=36_525)  # A hundred years.

EXAMPLES = "'latest', 'earliest', a datetime, or a duration such as '60 days ago'"


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin, checked."""

    # "latest", "earliest", or a time in ISO 8601, in UTC; "" where ago is given.
    text: str
    # So long before the database's clock, when it is first written there.
    ago: timedelta | None = None

    @classmethod
    def parse(cls, value: object, now: datetime | None = None) -> Start:
        """
        Return what *value* says.

        A datetime without a zone is taken in UTC.

        Args:
            value: As in the table above; a text may also be a time in ISO 8601.
            now: For tests; by default the time of this machine.

        Raises:
            TopicError: It says nothing of that, a time to come, or one that is longer
                ago than a hundred years.
        """
        if value in (LATEST, EARLIEST):
            return cls(str(value))
        if isinstance(value, timedelta):
            return _ago(value, value)
        if isinstance(value, datetime):
            return _at(value, value, now)
        if isinstance(value, str):
            found = AGO.match(value.strip())
            if found:
                number, short, unit = found.groups()
                one = SHORT[short] if short else UNITS[unit]
                try:
                    return _ago(int(number) * one, value)
                except OverflowError:
                    raise _too_long_ago(value) from None
            try:
                return _at(datetime.fromisoformat(value.strip()), value, now)
            except ValueError as error:
                if isinstance(error, TopicError):
                    raise
        raise TopicError(f"start={value!r}: it must be {EXAMPLES}.")


def _ago(ago: timedelta, said: object) -> Start:
    if ago < timedelta(0):
        raise TopicError(f"start={said!r}: it lies in the future; say 'latest'.")
    if ago > AGO_MAX:
        raise _too_long_ago(said)
    return Start("", ago)


def _at(moment: datetime, said: object, now: datetime | None) -> Start:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    now = datetime.now(UTC) if now is None else now
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise _too_long_ago(said) from None
    if moment > now:
        raise TopicError(
            f"start={said!r}: it lies in the future, and a subscription gets what is "
            f"published from now on in any case; say 'latest'."
        )
    if moment < now - AGO_MAX:
        raise _too_long_ago(said)
    return Start(moment.isoformat())


def _too_long_ago(said: object) -> TopicError:
    return TopicError(
        f"start={said!r}: it is longer ago than a hundred years; say 'earliest'."
    )


# First id -----------------------------------------------------------------------------
# First id: from which id on messages were published at or after a time.
#
# Ids are drawn and times are read when a row is stored, so both rise together, but for
# microseconds between two who publish at once. So an id is found by halving the ids of
# one day, and no index of times is needed.


# The bounds of the day first, from the ends of its primary key; then each step looks at
# the first message at or after the middle. Days are read through the parent, by a
# condition that leaves one partition. Locks: none.
FIRST_ID = f"""
WITH RECURSIVE halved(low, high) AS (
    SELECT (SELECT m.id FROM pgqueue_message m
             WHERE m.published_at >= %(day)s AND m.published_at < %(end)s
             ORDER BY m.id LIMIT 1),
           (SELECT m.id + 1 FROM pgqueue_message m
             WHERE m.published_at >= %(day)s AND m.published_at < %(end)s
             ORDER BY m.id DESC LIMIT 1)
    UNION ALL
    SELECT CASE WHEN probe.published_at < %(moment)s THEN probe.id + 1 ELSE low END,
           CASE WHEN probe.published_at < %(moment)s THEN high ELSE middle END
      FROM halved
     CROSS JOIN LATERAL (SELECT low + (high - low) / 2 AS middle) halves
     CROSS JOIN LATERAL (
        SELECT m.id, m.published_at FROM pgqueue_message m
         WHERE m.published_at >= %(day)s AND m.published_at < %(end)s
           AND m.id >= middle
         ORDER BY m.id LIMIT 1) probe
     WHERE low < high
)
SELECT coalesce(
    (SELECT low FROM halved WHERE low >= high),
    (SELECT m.id FROM pgqueue_message m WHERE m.published_at >= %(end)s
      ORDER BY m.id LIMIT 1),
    {DRAWN} + 1)
"""

DAY = timedelta(days=1)


def first_id(cursor: Cursor, moment: datetime) -> int:
    """
    Return the id from which on messages were published at or after *moment*.

    That is the id of a message, or one above the last of its day; where nothing was
    published since, it is one that none has yet.

    Args:
        cursor: On the database of the log.
        moment: With its zone.
    """
    # No message has a time beyond; a day more would be none that Python knows.
    moment = min(max(moment, TIME_MIN), TIME_MAX).astimezone(UTC)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    found: int = value(cursor, FIRST_ID, day=day, end=day + DAY, moment=moment)
    return found
