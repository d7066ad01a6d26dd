"""
Places: names of topics and groups on the command line, and places in a log.

    orders/stats                 a consumer group
    earliest, latest             the ends of a log
    4711                         the id of a message
    2026-01-31T12:00+01:00       a time; without a zone, one of the project's
    "2 hours ago", 90m           so long before now
"""

from __future__ import annotations

import argparse
from datetime import datetime

from django_pgqueue.exceptions import TopicError, did_you_mean
from django_pgqueue.log.groups import GroupRow
from django_pgqueue.log.names import PARTITION_MAX, check_topic
from django_pgqueue.log.seek import EARLIEST, LATEST
from django_pgqueue.log.start import Start
from django_pgqueue.management.cli.output import Output
from django_pgqueue.management.cli.words import ID_MAX
from django_pgqueue.operators.human import in_utc, shown
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.schedules.store import database_now

# A moment, how long before now, an id, or an end of the log.
Place = datetime | Start | int | str


def topic_name(text: str) -> str:
    """Read the name of a topic."""
    try:
        return check_topic(text)
    except TopicError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def group_name(text: str) -> tuple[str, str]:
    """Read TOPIC/GROUP."""
    topic, slash, name = text.partition("/")
    if not slash or not topic or not name:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no group: write its topic and its name, such as orders/stats"
        )
    return topic, name


def partition(text: str) -> int:
    """Read the number of a partition."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= 5
    if not is_number or int(text) > PARTITION_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no partition: a whole number from 0 to {PARTITION_MAX:,}"
        )
    return int(text)


def place(text: str) -> Place:
    """Read a place in a log."""
    if text in (EARLIEST, LATEST):
        return text
    if text.isascii() and text.isdecimal() and len(text) <= 19:
        if int(text) <= ID_MAX:
            return int(text)
    else:
        try:
            return in_utc(datetime.fromisoformat(text))
        except (ValueError, OverflowError):
            pass
        try:
            return Start.parse(text)
        except TopicError:
            pass
    raise argparse.ArgumentTypeError(
        f"{text!r} is no place in a log: write earliest, latest, the id of a message, "
        f"a time such as 2026-01-31T12:00+01:00, or how long ago, such as 90m or "
        f"'2 hours ago'"
    )


def resolved(cursor: Cursor, said: Place) -> int | str | datetime:
    """Return a place with how long ago as a moment, by the database's clock."""
    if not isinstance(said, Start):
        return said
    assert said.ago is not None
    return in_utc(database_now(cursor)) - said.ago


def chosen(
    rows: list[GroupRow], asked: tuple[str, str], out: Output
) -> GroupRow | None:
    """Return the group that is asked for; if there is none, say which may be meant."""
    row = next((each for each in rows if (each.topic, each.name) == asked), None)
    if row is None:
        name = "/".join(asked)
        near = did_you_mean(name, [str(each) for each in rows])
        out.note(f"No consumer group is called {shown(name)!r}.{shown(near)}")
    return row
