"""
Receivers: who can get messages of a log once more, and how that is said.

    group:NAME    subscription:QUEUE/PATTERN    queue:NAME, of a pull queue
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_pgqueue.bounds import PULL_TASK
from django_pgqueue.exceptions import TopicError, did_you_mean, shown
from django_pgqueue.log import groups, replay, subscriptions
from django_pgqueue.postgres.cursor import Cursor

WAYS_TO_SAY = (
    "write 'group:NAME', 'subscription:QUEUE/PATTERN', 'queue:NAME' of a pull queue, "
    "a Group, or the function of @subscribe or @consume"
)


def find(cursor: Cursor, topic: str, to: object) -> tuple[str, dict[str, Any]]:
    """
    Return who gets the messages, in words and as replay.Range has it.

    Args:
        cursor: On the database of the log.
        topic: Whose messages.
        to: As said above.

    Raises:
        TopicError: Nobody is called so, or several are.
    """
    kind, _, name = to.partition(":") if isinstance(to, str) else ("", "", "")
    if kind == "group":
        return _group(cursor, topic, name)
    if kind == "queue":
        return _queue(cursor, name)
    if kind == "subscription":
        return only(cursor, topic, f"{to}", lambda row: name in _names(row))
    raise TopicError(f"to={shown(to)}: {WAYS_TO_SAY}.")


def only(
    cursor: Cursor, topic: str, said: str, is_meant: Callable[[Any], bool]
) -> tuple[str, dict[str, Any]]:
    """
    Return the one subscription, or group, of a topic that is meant, as find() does.

    Args:
        cursor: As there.
        topic: As there.
        said: How it was said, for the error.
        is_meant: Whether a row of either is.

    Raises:
        TopicError: None is, or several are.
    """
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


def known(cursor: Cursor, topic: str) -> list[str]:
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
