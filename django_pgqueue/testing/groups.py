"""Groups: hand a consumer group what its topic's log has, here and now."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import connections, transaction

from django_pgqueue.conf import get_settings
from django_pgqueue.log import groups, positions
from django_pgqueue.log.groups import Declaration, GroupRow
from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.positions import Claimed
from django_pgqueue.log.read import read
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.tasks.payload import decode_value
from django_pgqueue.tasks.raised import Snooze
from django_pgqueue.tasks.task import Task
from django_pgqueue.testing.access import explained
from django_pgqueue.topics.acked import NOTHING, NotAcked, split
from django_pgqueue.topics.consume import Consumer, declared
from django_pgqueue.topics.run_batch import Ended, decide, run_batch
from django_pgqueue.topics.sync import declaration_of
from django_pgqueue.topics.write_after import write_after

READER = "drain_group"
LEASE = timedelta(hours=1)

# A handler that publishes to its own topic would read for ever.
BATCHES_MAX = 10_000


def drain_group(handler: Task[Any, Any], *, raise_errors: bool = True) -> int:
    """
    Call a function declared with @consume with all that its group has not read.

    In this thread and connection, so that a TestCase rolls it back: batch by batch and
    partition by partition, as workers would. A group that has no row yet begins with
    the earliest message.

    Args:
        handler: What @consume has returned.
        raise_errors: Whether what the handler raises is raised here; the position has
            then not moved. False: it is tried again without waiting, and becomes a dead
            letter or halts its partition, as the group says; with on_error="retry" the
            first failure ends it.

    Returns:
        How many messages it took.

    Raises:
        RuntimeError: More than 10,000 batches were read; or the test may not use the
            database.
        TypeError: The function is not declared with @consume.
    """
    __tracebackhide__ = True
    found = [each for each in declared() if each.task is handler]
    if not found:
        raise TypeError(f"drain_group() takes a function of @consume, not {handler!r}.")
    with explained("drain_group()"):
        return sum([_drain(consumer, raise_errors) for consumer in found])


def _drain(consumer: Consumer, raise_errors: bool) -> int:
    connection = connections[get_settings().database]
    group = _group(connection, consumer)
    taken = 0
    for _ in range(BATCHES_MAX):
        with connection.cursor() as cursor:
            # Not what this transaction holds back itself: nobody else is to be seen.
            bound = horizons(cursor).highest
            claimed = positions.claim(
                cursor, group.id, worker=READER, lease=LEASE, bound=bound
            )
            if claimed is None:
                return taken
            bound = positions.end_of(cursor, group.id, group.topic_id, claimed, bound)
        count, goes_on = _serve(
            connection, consumer, group, claimed, bound, raise_errors
        )
        taken += count
        if not goes_on:
            return taken
    raise RuntimeError(
        f"drain_group() read {BATCHES_MAX:,} batches and there are more: does "
        f"{consumer.task.name} publish to {consumer.topic!r}?"
    )


def _group(connection: Any, consumer: Consumer) -> GroupRow:
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        known = [
            each
            for each in groups.find_all(cursor)
            if (each.topic, each.name) == (consumer.topic, consumer.group)
        ]
        if not known:
            said = declaration_of(consumer)
            fields = {name: getattr(said, name) for name in said.__slots__}
            groups.declare(
                cursor, Declaration(**{**fields, "start": "earliest", "ago": None})
            )
        return groups.find(cursor, consumer.topic, consumer.group)


def _serve(
    connection: Any,
    consumer: Consumer,
    group: GroupRow,
    claimed: Claimed,
    bound: int,
    raise_errors: bool,
) -> tuple[int, bool]:
    """Hand over one batch; return how many messages, and whether to go on."""
    single_to = claimed.single_to
    is_single = single_to is not None and single_to > claimed.position
    with connection.cursor() as cursor:
        batch = read(
            cursor,
            topic=group.topic,
            topic_id=group.topic_id,
            partition=claimed.partition,
            after=claimed.position,
            bound=min(bound, single_to) if is_single and single_to else bound,
            limit=1 if is_single else consumer.batch,
            max_bytes=consumer.batch_bytes,
            where=consumer.where,
            decode=decode_value,
        )

    kept = claimed

    def moves(keeps: bool) -> bool:
        nonlocal kept
        with connection.cursor() as cursor:
            moved = positions.advance(cursor, claimed, batch.to, keeps=keeps)
        kept = (moved and moved.kept) or claimed
        return moved is not None

    def moves_within(cursor: Cursor) -> bool:
        return bool(positions.advance(cursor, claimed, batch.to))

    if not batch.messages:
        moves(False)
        return 0, True
    if batch.error is not None:
        ended = Ended(batch.error, 0.0)
    else:
        ended = run_batch(
            consumer,
            claimed,
            batch.messages,
            settings=get_settings(),
            moves=moves,
            moves_within=moves_within,
            lease_seconds=None,
        )
    error, taken = ended.error, len(batch.messages)
    if ended.acked is not None:
        done, batch = split(batch, ended.acked)
        taken = len(done.messages)
        if error is None and not taken:
            error = NotAcked(NOTHING)
        if taken:
            with connection.cursor() as cursor:
                keeps = error is not None
                moved = positions.advance(cursor, claimed, done.to, keeps=keeps)
            claimed = kept = (moved and moved.kept) or claimed
    if error is None:
        if ended.was_acked:
            _free(connection, kept)
        return taken, True
    if raise_errors or ended.was_acked:
        _free(connection, kept)
        raise error
    after = decide(
        consumer,
        messages=len(batch.messages),
        failures=claimed.failures,
        error=error,
    )
    with connection.cursor() as cursor:
        write_after(cursor, claimed, batch, after, error, at=claimed.claimed_at)
        positions.hurry(cursor, claimed.id)
    is_tried_for_ever = consumer.on_error == "retry" or isinstance(error, Snooze)
    return 0 if ended.acked is None else taken, not is_tried_for_ever


def _free(connection: Any, claimed: Claimed) -> None:
    with connection.cursor() as cursor:
        positions.free(cursor, claimed)
