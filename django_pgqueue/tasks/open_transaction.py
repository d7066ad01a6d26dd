"""Open transaction: whether the application has one; those of TestCase do not count."""

from __future__ import annotations

from typing import Any

from django.db import connections

from django_pgqueue.exceptions import WrongDatabase


def has_transaction(connection: Any) -> bool:
    """
    Whether *connection* is in a transaction of the application's.

    After set_autocommit(False) there is one from the next statement on, and Django
    does not know of its end: that counts too.
    """
    if connection.in_atomic_block:
        return not all(_is_of_test_case(block) for block in connection.atomic_blocks)
    return connection.connection is not None and not connection.autocommit


def has_test_case(connection: Any) -> bool:
    """Whether *connection* is in a transaction that a TestCase opened."""
    return any(_is_of_test_case(block) for block in connection.atomic_blocks)


def open_alias(besides: str | None = None) -> str | None:
    """Return an alias on which the application has a transaction open, if any."""
    if all(alias == besides for alias in connections):
        return None
    for connection in connections.all(initialized_only=True):
        if connection.alias != besides and has_transaction(connection):
            alias: str = connection.alias
            return alias
    return None


def queue_connection(
    name: str, alias: str, *, is_message: bool = False, anywhere: bool = False
) -> Any:
    """
    Return Django's connection for what is stored in *alias*.

    Args:
        name: Of the task or the topic, for the error.
        alias: The database that stores jobs and messages.
        is_message: Whether it is a message that is to be stored.
        anywhere: Return it whatever is open.

    Raises:
        WrongDatabase: A transaction is open on another alias.
    """
    other = None if anywhere else open_alias(besides=alias)
    if other is not None:
        raise WrongDatabase(
            task=name, open_alias=other, queue_alias=alias, is_message=is_message
        )
    return connections[alias]


def _is_of_test_case(block: Any) -> bool:
    return bool(getattr(block, "_from_testcase", False))
