"""
Operate: what people do with subscriptions while code declares them.

For the admin's pages, commands, and a project's own. A disabled subscription makes no
jobs of what is published meanwhile, and nothing makes up for that; its back-fill rests.
"""

from __future__ import annotations

from django_pgqueue.log import subscriptions
from django_pgqueue.tasks import database
from django_pgqueue.tasks.operate import checked_texts


def disable(subscription_id: int, *, by: str = "", reason: str = "") -> bool:
    """
    Let messages make no jobs of a subscription, from this commit on.

    Jobs that are there already run. A deploy leaves it disabled.

    Args:
        subscription_id: Of its row.
        by: Who; at most 150 characters.
        reason: Why; at most 2,000 characters.

    Returns:
        False if it was disabled already, and who and why stay; or if there is none.

    Raises:
        InvalidOption: A text is too long, or cannot be stored.
    """
    by, reason = checked_texts(by, reason)
    with database.transaction() as (_connection, cursor):
        return subscriptions.disable(cursor, subscription_id, by=by, reason=reason)


def enable(subscription_id: int) -> bool:
    """
    Let it have a job of each message again that is published from this commit on.

    Returns:
        False if it was enabled, or there is none.
    """
    with database.transaction() as (_connection, cursor):
        return subscriptions.enable(cursor, subscription_id)


def delete(subscription_id: int) -> bool:
    """
    Delete a subscription of a user, or one that code has not declared for a week.

    Returns:
        False if code has declared it lately, or there is none.
    """
    with database.transaction() as (_connection, cursor):
        return subscriptions.delete(cursor, subscription_id)
