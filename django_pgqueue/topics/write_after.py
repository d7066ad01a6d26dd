"""Write after: what follows a batch that is not done, as rows."""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple

from django_pgqueue.log import positions
from django_pgqueue.log.positions import Claimed
from django_pgqueue.log.read import Batch
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.tasks.errors import message_of, traceback_of
from django_pgqueue.topics.after_batch import After, Again, Halted, Skipped


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
