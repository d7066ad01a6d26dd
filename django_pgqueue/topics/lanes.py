"""
Lanes: whom the jobs of a subscription wait for.

They are made in the database, where no function of Python can be called. So what makes
the key is a part of the message, by its name: sql/message_lane.sql takes its text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from django_pgqueue.exceptions import DeclarationError, did_you_mean, shown
from django_pgqueue.options.lanes import Lane

# The message's own key, its name, and a field of its payload, or a field of that.
KEY, NAME, PAYLOAD = "key", "name", "payload"
FIELD = re.compile(r"payload(\.[^.\x00-\x1f\ud800-\udfff]+)+")
FIELD_CHARACTERS_MAX = 255

KEYS = (
    '"key", the key with which the message was published, "name", or a field of its '
    'payload, such as "payload.customer_id"'
)


def check_parts(lane: Lane) -> None:
    """Raise DeclarationError unless the lane can be told from a message, in SQL."""
    if lane.function is not None:
        raise DeclarationError(
            f"@subscribe: {lane.option} is a function, and the jobs of messages are "
            f"made in the database, which cannot call it. Name what makes the key: "
            f"{KEYS}; or let the function enqueue a task that has it."
        )
    for part in lane.by:
        if part in (KEY, NAME):
            continue
        if FIELD.fullmatch(part) is None or len(part) > FIELD_CHARACTERS_MAX:
            near = did_you_mean(part, [KEY, NAME, f"{PAYLOAD}.{part}"])
            raise DeclarationError(
                f"@subscribe: {lane.option}: {shown(part)} is no part of a message."
                f"{near} It must be {KEYS}, of at most {FIELD_CHARACTERS_MAX} "
                f"characters."
            )


def check_of_task(name: str, lane: Lane) -> None:
    """Raise DeclarationError unless the lane of a task is one of its messages, too."""
    if lane.function is None and not lane.by:
        return
    raise DeclarationError(
        f"@subscribe: {name} has {lane.option}=…, whose key is made of the arguments "
        f"of a call, and its one argument is a message. Say @subscribe("
        f"{lane.option}=…) with a key of the message: {KEYS}; {lane.option}=False: its "
        f"messages wait for nobody."
    )


def check_of_queue(name: str, queue: str, names: Sequence[str]) -> None:
    """Raise DeclarationError: jobs of *queue* take turns, and messages have no key."""
    raise DeclarationError(
        f"@subscribe: {name} is in the queue {queue!r}, where jobs take turns by "
        f"PGQUEUE['QUEUES'][{queue!r}]['fair_by'], {', '.join(names)}: that is made of "
        f"the arguments of a call, and its one argument is a message. Say @subscribe("
        f"fair_by=…) with a key of the message: {KEYS}; fair_by=False: its messages "
        f"take no turns."
    )
