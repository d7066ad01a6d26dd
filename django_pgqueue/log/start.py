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

from django_pgqueue.exceptions import TopicError

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
