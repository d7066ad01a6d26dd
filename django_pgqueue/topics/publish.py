"""
Publish: messages go into their topics' logs, in the caller's transaction.

They commit with the data that they are about, or were never there; with them the jobs
of every subscription that wants them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connections, transaction

from django_pgqueue import signals, telemetry
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import InvalidArgument, QueueFull, TopicError, shown
from django_pgqueue.log import publish as storage
from django_pgqueue.log.names import topic_of
from django_pgqueue.log.publish import HINT
from django_pgqueue.options.checks import When
from django_pgqueue.postgres.bulk import (
    BULK_CURSOR_CHARACTERS,
    BULK_ROWS_MAX,
    Items,
    bulk_cursor,
    chunks,
    may_prepare,
)
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.queues.lanes import HINT as LANES_HINT
from django_pgqueue.queues.lanes import freed_hints
from django_pgqueue.tasks import registry
from django_pgqueue.tasks.database import cursor, queue_connection, twin
from django_pgqueue.tasks.errors import FIRST_ERRORS, name_way_out, way_out
from django_pgqueue.topics.registry import check_types, find, to_payload
from django_pgqueue.topics.write_after import Publication, publication, see_to_days

T = TypeVar("T")


def publish(
    name: str,
    payload: Any,
    *,
    key: str | int | None = None,
    headers: Mapping[str, Any] | None = None,
    run_after: When | None = None,
) -> int:
    """
    Publish one message, in the caller's transaction: one query.

        publish("orders.created", {"id": 42}, key="c7")

    Args:
        name: What it is called; the part before the first dot is its topic. A topic
            that nobody has declared is made.
        payload: Any value that can travel as a task's argument.
        key: A text of 1 to 1,000 characters, or an int: messages of one key keep
            their order.
        headers: A dict for whoever reads it; reserved keys are refused.
        run_after: A datetime, or a duration from now on the database's clock: it is
            published then, and can be cancelled until then. None: at once.

    Returns:
        The message's id. With run_after it is below zero, for cancel_message().

    Raises:
        TopicError: The name or the key cannot be, or the payload does not fit the
            topic's schema.
        InvalidArgument: The payload cannot travel as JSON.
        PayloadTooLarge: It exceeds PGQUEUE['PAYLOAD_BYTES_MAX'].
        QueueFull: A subscription to it has a full backlog, and refuses.
        InvalidOption: A header is reserved, or run_after no time that can be.
        WrongDatabase: A transaction is open on another alias than the topics'.
    """
    made = message(name, payload, key=key, headers=headers, run_after=run_after)
    return publish_one(made)


def publish_one(made: Publication) -> int:
    """Publish what message() or Topic.message() has made; as publish()."""
    if made.is_later:
        return store({}, {made.topic: [Items(made.item(), 1)]})[1][made.topic][0]
    try:
        settings = get_settings()
        topic = made.topic
        connection = queue_connection(topic, settings.database, is_message=True)
        see_to_days(connection)
        if settings.trace:
            from django_pgqueue.tasks import tracing

            with tracing.sending("publish", topic) as span:
                headers = tracing.carry(made.headers_text)
                stored = _store_one(connection, made, headers)
                tracing.stored(span, stored.ids)
        else:
            stored = _store_one(connection, made, made.headers_text)
        announce(connection, topic, stored)
        if settings.mode == "immediate":
            _run_at_once(connection, {topic: stored.ids})
        return stored.ids[0]
    except FIRST_ERRORS as error:
        name_way_out(error, "publish()", "apublish(…) or apublish_many(…)")
        raise


def publish_many(publications: Iterable[Publication]) -> list[int]:
    """
    Publish messages that Topic.message() has made: all or nothing.

    One statement for each topic and 5,000 messages, and likewise of those that have
    run_after.

    Returns:
        Their ids, in the order of the messages. Those of one topic rise in it; of what
        is published later, they are below zero, and fall.

    Raises:
        TopicError: One of them is none.
        WrongDatabase: As publish().
    """
    given = list(publications)
    at_once: dict[str, list[int]] = {}
    later: dict[str, list[int]] = {}
    for place, each in enumerate(given):
        if not isinstance(each, Publication):
            raise TopicError(
                f"publish_many() takes what Topic.message(…) returns; item {place} is "
                f"{shown(each)}. For payloads of one topic: topic.publish_many(…)."
            )
        (later if each.is_later else at_once).setdefault(each.topic, []).append(place)
    ids = [0] * len(given)
    both = at_once, later
    stored = store(*map(functools.partial(_batches, given), both))
    for by_topic, found in zip(both, stored, strict=True):
        for topic, places in by_topic.items():
            for place, message_id in zip(places, found[topic], strict=True):
                ids[place] = message_id
    return ids


def _batches(
    given: Sequence[Publication], by_topic: Mapping[str, Sequence[int]]
) -> dict[str, list[Items]]:
    """Return some messages as store() takes them, of those that are *given*."""
    return {
        topic: [Items(given[place].item(), 1) for place in places]
        for topic, places in by_topic.items()
    }


apublish = twin(publish)


apublish_many = twin(publish_many)


def message(
    name: str,
    payload: Any,
    *,
    key: object = None,
    headers: Mapping[str, Any] | None = None,
    run_after: When | None = None,
) -> Publication:
    """Return a message that is checked and not published; raises as publish()."""
    declared = find(topic_of(name)) if isinstance(name, str) else None
    settings = get_settings()
    if declared is not None and declared.schema is not None:
        payload = to_payload(name, declared.schema, payload)
        checks = declared.check_types
        if checks is None:
            checks = settings.defaults.get("check_types")
        if checks:
            check_types(name, declared.schema, payload, settings.redact)
    return publication(
        name,
        payload,
        key=key,
        headers=headers,
        payload_bytes_max=settings.payload_bytes_max,
        run_after=run_after,
    )


def store(
    batches: Mapping[str, Sequence[Items]], later: Mapping[str, Sequence[Items]]
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """
    Store encoded messages by topic: all or nothing.

    Args:
        batches: For each topic its messages, as log/publish.py takes them.
        later: Those that are published later, as sql/schedule_messages.sql takes them.

    Returns:
        The ids for each topic, in the order of its messages; of either.
    """
    if not batches and not later:
        return {}, {}
    with way_out("publish()", "apublish(…) or apublish_many(…)"):
        settings = get_settings()
        topic = next(iter(batches or later))
        connection = queue_connection(topic, settings.database, is_message=True)
        if batches:
            see_to_days(connection)
        if _is_one_statement(batches, later):
            ids = _store(connection, batches, later)
        else:
            with transaction.atomic(using=settings.database, savepoint=False):
                ids = _store(connection, batches, later)
        if settings.mode == "immediate":
            _run_at_once(connection, ids[0])
        return ids


def wake_all(connection: Any, names: Iterable[str]) -> None:
    """
    Wake after the commit whoever serves queues, lanes or topics.

    Args:
        connection: Django's, on which messages were stored.
        names: What is notified: queues, what stands for jobs in lanes, and HINT with
            the name of a topic.
    """
    for name in sorted(names):
        wake_after_commit(connection, name, tells_age=name == LANES_HINT)


def _is_one_statement(*both: Mapping[str, Sequence[Items]]) -> bool:
    """Whether all are stored by one statement, which needs no transaction around it."""
    every = [items for batches in both for items in batches.values()]
    return len(every) == 1 and len(list(chunks(every[0], BULK_ROWS_MAX))) == 1


def _store(
    connection: Any,
    batches: Mapping[str, Sequence[Items]],
    later: Mapping[str, Sequence[Items]],
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    published = {}
    # In the order of their names: two who make the same new topics do not deadlock.
    for topic in sorted(batches):
        published[topic] = _in_span(_store_many, connection, topic, batches[topic])
    scheduled = {}
    for topic in sorted(later):
        ids = _in_span(_store_later, connection, topic, later[topic])
        scheduled[topic] = ids
        wake_all(connection, [LANES_HINT])
    return published, scheduled


def _in_span(
    put: Callable[[Any, str, Sequence[Items]], list[int]],
    connection: Any,
    topic: str,
    items: Sequence[Items],
) -> list[int]:
    """Store messages of a topic; by a span, where PGQUEUE["TRACE"] is on."""
    if not get_settings().trace:
        return put(connection, topic, items)
    from django_pgqueue.tasks import tracing

    with tracing.sending("publish", topic) as span:
        ids = put(connection, topic, tracing.carry_all(items))
        tracing.stored(span, ids)
    return ids


def _store_one(connection: Any, made: Publication, headers: str) -> storage.Stored:
    characters = len(made.payload_text) + len(headers)
    with _refusing(), _cursor(connection, characters, is_short=True) as cursor:
        return storage.publish_one(
            cursor, made.name, made.key, made.payload_text, headers
        )


def _store_many(connection: Any, topic: str, items: Sequence[Items]) -> list[int]:
    characters = sum(len(each.text) for each in items)
    messages = sum(each.jobs for each in items)
    with _refusing(messages), _cursor(connection, characters) as cursor:
        stored = storage.publish(cursor, topic, items)
    announce(connection, topic, stored)
    return stored.ids


def _store_later(connection: Any, topic: str, items: Sequence[Items]) -> list[int]:
    with _cursor(connection, sum(len(each.text) for each in items)) as cursor:
        return storage.store_later(cursor, items)


@contextmanager
def _refusing(messages: int = 1) -> Iterator[None]:
    """Raise QueueFull, and send its signal, where a subscription is full."""
    try:
        yield
    except storage.SubscriptionFull as error:
        full = error.refused
        told: dict[str, Any] = {
            "queue": full.queue,
            "depth": full.depth,
            "depth_max": full.depth_max,
            "jobs": messages,
        }
        task = registry.tasks.get(full.task)
        telemetry.send(signals.queue_full, task, on_full="refuse", **told)
        raise QueueFull(
            task=full.task, said=f"@subscribe({full.pattern!r}, backlog=…)", **told
        ) from None


def announce(connection: Any, topic: str, stored: storage.Stored) -> None:
    """Wake whom new messages concern, after the commit, and send the signal."""
    wake_all(
        connection, stored.queues | ({HINT + topic} if stored.has_groups else set())
    )
    telemetry.send(
        signals.messages_published,
        None,
        topic=topic,
        ids=stored.ids,
        jobs=stored.jobs,
    )


def _run_at_once(connection: Any, ids: Mapping[str, list[int]]) -> None:
    """Run the jobs that subscriptions have of these messages, as delay() runs its."""
    from django_pgqueue.tasks.inline import run_enqueued

    published = [message_id for some in ids.values() for message_id in some]
    with connection.cursor() as cursor:
        jobs = storage.jobs_of(cursor, published)
    run_enqueued(jobs)


def _cursor(connection: Any, characters: int, *, is_short: bool = False) -> Any:
    """
    Return the cursor that costs less for so much text.

    Args:
        connection: Django's.
        characters: Of the text.
        is_short: Whether the statement is always the same, so that it pays to prepare
            it, where the alias allows that: OPTIONS["prepare_threshold"].
    """
    if characters >= BULK_CURSOR_CHARACTERS or (is_short and may_prepare(connection)):
        return bulk_cursor(connection)
    return connection.cursor()


# Later --------------------------------------------------------------------------------


ID_MIN = -(2**63)


def cancel_message(message_id: int) -> bool:
    """
    Cancel a message that publish(run_after=…) has stored: one query.

        reminder = orders.publish("orders.reminder", {"id": 42}, run_after="3d")
        cancel_message(reminder)

    In the caller's transaction. Where it is being published at this moment, this waits
    for that.

    Args:
        message_id: What publish() has returned.

    Returns:
        Whether it was still there. Else it is published, or was cancelled before.

    Raises:
        InvalidArgument: It is no id below zero: what stands in a log stays there.
    """
    checked = check_id(message_id)
    with way_out("cancel_message()", "acancel_message(…)"):
        with cursor() as opened:
            gone = storage.cancel_later(opened, checked)
        if gone is None:
            return False
        lane, held_place = gone
        if held_place:
            wake_all(connections[get_settings().database], freed_hints([lane]))
        return True


acancel_message = twin(cancel_message)


def check_id(message_id: object) -> int:
    """Return the id of a scheduled message; raise InvalidArgument."""
    is_one = isinstance(message_id, int) and not isinstance(message_id, bool)
    if not is_one or not ID_MIN <= message_id < 0:  # type: ignore[operator]
        raise InvalidArgument(
            task="cancel_message()",
            path="message_id",
            problem=f"is {shown(message_id)}; it must be what publish(run_after=…) has "
            f"returned, a number below zero. What was published stays in its log.",
        )
    assert isinstance(message_id, int)
    return message_id
