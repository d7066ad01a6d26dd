"""Database: Django's connection to that of the jobs, in this thread."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import WrongDatabase
from django_pgqueue.postgres.cursor import Cursor

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def cursor() -> Iterator[Cursor]:
    """Open a cursor: in the transaction that is open, or in none."""
    from django.db import connections

    with connections[get_settings().database].cursor() as opened:
        yield opened


@contextmanager
def transaction() -> Iterator[tuple[Any, Cursor]]:
    """Open a transaction, or a savepoint in one; give its connection and a cursor."""
    from django.db import connections, transaction

    connection = connections[get_settings().database]
    with transaction.atomic(using=connection.alias), connection.cursor() as opened:
        yield connection, opened


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Run *function* where Django's connections are; context variables are kept."""
    return await sync_to_async(function)(*args)


def twin(
    function: Callable[P, T], *, run: Callable[..., Awaitable[Any]] = in_thread
) -> Callable[P, Coroutine[Any, Any, T]]:
    """
    Return what async code calls in place of a function or method: aget of get.

    Type checkers see the parameters and the result of *function*.

    Args:
        function: Which may wait for the database.
        run: Calls it in a thread; by default in that of Django's connections, with
            the context variables of the caller.
    """
    name = function.__name__

    @functools.wraps(function)
    async def called(*args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await run(functools.partial(function, *args, **kwargs))
        return result

    called.__name__ = f"a{name}"
    called.__qualname__ = function.__qualname__.removesuffix(name) + f"a{name}"
    called.__doc__ = f"Await {name}(), from async code."
    return called


# Open transaction ---------------------------------------------------------------------


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
