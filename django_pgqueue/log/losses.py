"""Losses: messages that retention removes before somebody has had them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import NamedTuple

# Lost messages that are counted exactly, of one group in one partition.
LOST_MAX = 10_000


class Loss(NamedTuple):
    """What a group loses: messages that it has not read and that are removed."""

    topic: str
    group: str
    task: str
    partitions: tuple[int, ...]
    messages: int
    # Whether that is all of them, or they were counted no further.
    is_exact: bool
    first_id: int
    last_id: int
    first_at: datetime
    last_at: datetime


class BackfillLoss(NamedTuple):
    """What a subscription loses: older messages that it has no job for yet."""

    topic: str
    pattern: str
    queue: str
    task: str
    # Whether it is, so that it got none; else its back-fill was too slow.
    is_disabled: bool
    messages: int
    # Whether that is all of them, or they were counted no further.
    is_exact: bool
    first_id: int
    last_id: int
    first_at: datetime
    last_at: datetime


def loss_entry(loss: Loss | BackfillLoss, one: str, many: str, **more: str) -> str:
    """
    Return what a row keeps of a loss, as JSON.

    Args:
        loss: What was lost.
        one: What had not happened to it, if it is one message: "it was read".
        many: The same, if they are several.
        more: To keep besides.
    """
    plus = "" if loss.is_exact else " or more"
    is_one = loss.messages == 1 and loss.is_exact
    return json.dumps(
        {
            "message": f"{loss.messages:,}{plus} message{'' if is_one else 's'} of "
            f"{loss.topic} {'was' if is_one else 'were'} removed before "
            f"{one if is_one else many}: ids {loss.first_id} to {loss.last_id}, of "
            f"{loss.first_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} to "
            f"{loss.last_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC.",
            **more,
            "messages": loss.messages,
            "is_exact": loss.is_exact,
            "first_id": loss.first_id,
            "last_id": loss.last_id,
            "first_at": loss.first_at.isoformat(),
            "last_at": loss.last_at.isoformat(),
        }
    )
