"""Write after: what follows a batch that is not done, as rows."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from django_pgqueue.exceptions import PayloadTooLarge
from django_pgqueue.log import positions
from django_pgqueue.log.days import has_days
from django_pgqueue.log.names import check_key, check_name, topic_of
from django_pgqueue.log.positions import Claimed
from django_pgqueue.log.read import Batch
from django_pgqueue.options.checks import When, check_when
from django_pgqueue.options.marks import check_headers
from django_pgqueue.postgres.apart import make_apart
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.day_tables import LOG
from django_pgqueue.tasks import payload as payloads
from django_pgqueue.tasks.errors import message_of, traceback_of
from django_pgqueue.topics.run_batch import After, Again, Halted, Skipped


class Written(NamedTuple):
    """What was written."""

    # False: nothing, since the partition is somebody else's by now.
    is_ours: bool
    # The id of the dead letter.
    dead: int | None = None


def write_after(
    cursor: Cursor,
    claimed: Claimed,
    batch: Batch,
    after: After,
    error: BaseException | None,
    *,
    at: datetime,
    ran_seconds: float = 0.0,
) -> Written:
    """
    Write what was decided: one fenced statement.

    Args:
        cursor: In autocommit.
        claimed: The partition.
        batch: What was read of it; one message at least.
        after: What was decided.
        error: What the handler raised; None: it was not called, or a reader died.
        at: When, by the database's clock.
        ran_seconds: How long the handler ran.
    """
    entry = None
    if error is not None and not (isinstance(after, Again) and not after.is_failure):
        entry = _entry(claimed, batch, error, at, ran_seconds)
    first, last = batch.messages[0], batch.messages[-1]
    if isinstance(after, Again):
        is_ours = positions.fail(
            cursor,
            claimed,
            delay=after.delay,
            error=entry,
            single_to=last.id if after.one_by_one else None,
            counts=after.counts,
        )
        return Written(is_ours)
    if isinstance(after, Halted):
        return Written(positions.halt(cursor, claimed, error=entry))
    if isinstance(after, Skipped):
        dead = positions.skip(
            cursor,
            claimed,
            message_id=first.id,
            published_at=first.published_at,
            headers=first.headers,
            error=entry,
            reason=after.reason,
            ran_seconds=ran_seconds,
        )
        return Written(dead is not None, dead)
    return Written(bool(positions.advance(cursor, claimed, batch.to)))


def _entry(
    claimed: Claimed,
    batch: Batch,
    error: BaseException,
    at: datetime,
    ran_seconds: float,
) -> str:
    """Return what a position keeps of a failure, as JSON."""
    return json.dumps(
        {
            "kind": "error",
            "type": f"{type(error).__module__}.{type(error).__qualname__}",
            "message": message_of(error),
            "traceback": traceback_of(error),
            "attempt": claimed.failures + 1,
            "messages": len(batch.messages),
            "message_id": batch.messages[0].id,
            "worker": claimed.worker,
            "at": at.isoformat(),
            "ran_seconds": ran_seconds,
        }
    )


# Days ahead ---------------------------------------------------------------------------
# Days ahead: a publisher sees to the log's days before its transaction needs them.
#
# The leader makes them two weeks ahead. Where none has led for that long, the first
# message of a day makes its day, in its own transaction; so this looks an hour ahead at
# least, and makes what is missing apart.


INTERVAL_SECONDS = 3_600.0

# By alias: when this process looks again.
_due_at: dict[str, float] = {}


def see_to_days(connection: Any) -> None:
    """
    Make the log's days where today's or tomorrow's is missing, once an hour.

    Args:
        connection: Django's. Outside of a transaction there is nothing to see to: what
            a publish makes is committed at once.
    """
    if not connection.in_atomic_block or connection.needs_rollback:
        return
    now = time.monotonic()
    if now < _due_at.get(connection.alias, 0.0):
        return
    _due_at[connection.alias] = now + INTERVAL_SECONDS
    connection.ensure_connection()
    try:
        # Not Django's cursor: it is no query of the application's.
        with psycopg.Cursor(connection.connection) as cursor:
            is_there = has_days(cursor)
    except psycopg.Error:
        return  # The publish meets the same, and tells.
    if not is_there:
        make_apart(connection.alias, LOG.make)


# Publication --------------------------------------------------------------------------


EMPTY = "{}"


@dataclass(frozen=True, slots=True)
class Publication:
    """What publish() stores. Topic.message() makes one."""

    name: str
    key: str | None
    # JSON text, within PGQUEUE["PAYLOAD_BYTES_MAX"] together.
    payload_text: str
    headers_text: str = EMPTY
    # When it is published: at a moment, or so long from then on; None: at once.
    run_at: datetime | None = None
    delay: timedelta | None = None

    @property
    def topic(self) -> str:
        """The topic that it is published to."""
        return topic_of(self.name)

    @property
    def is_later(self) -> bool:
        """Whether it has a moment of its own."""
        return self.run_at is not None or self.delay is not None

    def item(self) -> str:
        """Return it as log/publish.py takes it: a JSON array."""
        name, key = payloads.ENCODER.encode([self.name, self.key])[1:-1].split(",", 1)
        when = ""
        if self.run_at is not None:
            when = f',"{self.run_at.isoformat()}"'
        elif self.delay is not None:
            when = f",null,{self.delay.total_seconds()}"
        return f"[{name},{key},{self.payload_text},{self.headers_text}{when}]"


def publication(
    name: str,
    payload: Any,
    *,
    key: object,
    headers: Mapping[str, Any] | None,
    payload_bytes_max: int,
    run_after: When | None = None,
) -> Publication:
    """
    Return a message, checked.

    Args:
        name: As it is called.
        payload: Any value that can travel as a task's argument.
        key: A text or an int; None: it has no order.
        headers: As those of a job.
        payload_bytes_max: Of payload and headers together, as UTF-8 JSON.
        run_after: When it is published, as of a job; None: at once.

    Raises:
        TopicError: The name or the key cannot be.
        InvalidArgument: A value cannot travel.
        InvalidOption: The headers are no dict, or have a reserved key; or run_after is
            neither a moment nor a duration.
        PayloadTooLarge: Both together are too large.
    """
    check_name(name)
    text = payloads.encode_at(name, "payload", payload)
    headers_text = EMPTY
    if headers:
        headers_text = payloads.encode_at(name, "headers", dict(check_headers(headers)))
    size = len(text.encode()) + len(headers_text.encode())
    if size > payload_bytes_max:
        raise PayloadTooLarge(
            task=name,
            payload_bytes=size,
            payload_bytes_max=payload_bytes_max,
            what="payload and headers",
        )
    made = Publication(name, check_key(key), text, headers_text)
    if run_after is None:
        return made
    run_at, delay = check_when("run_after", run_after)
    return replace(made, run_at=run_at, delay=delay)
