"""Scheduled: what becomes of a message that is published later, until it is."""

from __future__ import annotations

from django_pgqueue.exceptions import InvalidArgument, shown
from django_pgqueue.log import scheduled
from django_pgqueue.tasks.database import cursor, in_thread
from django_pgqueue.tasks.errors import FIRST_ERRORS, name_way_out

ID_MIN = -(2**63)


def cancel_message(message_id: int) -> bool:
    """
    Cancel a message that publish(run_after=…) has scheduled: one query.

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
    try:
        with cursor() as opened:
            return bool(scheduled.cancel(opened, [checked]))
    except FIRST_ERRORS as error:
        name_way_out(error, "cancel_message()", "acancel_message(…)")
        raise


async def acancel_message(message_id: int) -> bool:
    """Cancel a message from async code; as cancel_message()."""
    return await in_thread(cancel_message, message_id)


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
