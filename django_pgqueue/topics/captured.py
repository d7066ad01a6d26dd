"""
Captured: what Django's connection does about writes that triggers capture.

A trigger that has published says in a NOTICE whom to wake, and what comes after the
commit is as of publish(). The other way round, a transaction that writes is told who
acts, where capture_actor() says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from django.db import transaction
from psycopg.pq import TransactionStatus

from django_pgqueue.exceptions import InvalidOption, shown
from django_pgqueue.log.captures import PUBLISHED, set_actor

ACTOR_CHARACTERS_MAX = 255

# What changes rows, but for what SELECT, CALL and DO run: these may end transactions.
WRITES = re.compile(r"\s*(INSERT|UPDATE|DELETE|MERGE|WITH|COPY)\b", re.IGNORECASE)
# Takes back what the transaction was told since the savepoint.
GOES_BACK = re.compile(r"\s*ROLLBACK\s+TO\b", re.IGNORECASE)

_actor: ContextVar[str] = ContextVar("pgqueue_capture_actor", default="")

# The receivers of notices, so that a connection of a pool has one.
_receivers: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


@contextmanager
def capture_actor(actor: str | None) -> Iterator[None]:
    """
    Name who acts, in the header ``actor`` of each message of a captured change.

        with capture_actor(f"user:{request.user.pk}"):
            order.save()

    It holds for writes through Django's connection of PGQUEUE['DATABASE'], in async
    code too, and costs a query for each transaction that writes. A single write without
    a transaction is put into one. What SELECT, CALL and DO run is told only within a
    transaction that has written before.

    Args:
        actor: A text of 1 to 255 characters; None: nobody is named.

    Raises:
        InvalidOption: It is anything else.
    """
    if actor is not None and (
        not isinstance(actor, str)
        or not 1 <= len(actor) <= ACTOR_CHARACTERS_MAX
        or "\x00" in actor
    ):
        raise InvalidOption(
            f"capture_actor({shown(actor)}): say who acts in 1 to "
            f"{ACTOR_CHARACTERS_MAX} characters, as in 'user:7', or None."
        )
    token = _actor.set(actor or "")
    try:
        yield
    finally:
        _actor.reset(token)


class Captured:
    """An execute wrapper of one connection of Django."""

    def __init__(self) -> None:
        self._woken: set[str] = set()
        # Whom the transaction was told; "": nobody, None: who knows.
        self._told: str | None = ""

    def hear(self, notice: Any) -> None:
        """Take a notice of the server: it may come in the midst of a statement."""
        if notice.sqlstate == PUBLISHED:
            self._woken.update(json.loads(notice.message_detail))

    def __call__(
        self,
        execute: Callable[..., Any],
        sql: Any,
        params: Any,
        many: bool,
        context: dict[str, Any],
    ) -> Any:
        """Run a statement, and arrange for what follows it."""
        try:
            if _actor.get() or self._told != "":
                result = self._tell_and(execute, sql, params, many, context)
            else:
                result = execute(sql, params, many, context)
        except BaseException:
            self._woken.clear()
            raise
        if self._woken:
            # Most connections write nothing that is captured.
            from django_pgqueue.topics.publish import wake_all

            # A wake is a statement, too.
            woken, self._woken = self._woken, set()
            wake_all(context["connection"], woken)
        return result

    def _tell_and(
        self,
        execute: Callable[..., Any],
        sql: Any,
        params: Any,
        many: bool,
        context: dict[str, Any],
    ) -> Any:
        """Run a statement; before one that writes, tell the transaction who acts."""
        connection, actor = context["connection"], _actor.get()
        text = sql if isinstance(sql, str) else ""
        status = connection.connection.info.transaction_status
        if status == TransactionStatus.IDLE:
            self._told = ""  # A new one.
        if GOES_BACK.match(text):
            self._told = None
        if self._told == actor or not WRITES.match(text):
            return execute(sql, params, many, context)
        if status == TransactionStatus.IDLE and connection.get_autocommit():
            with transaction.atomic(using=connection.alias):
                self._tell(connection, actor)
                result = execute(sql, params, many, context)
            self._told = ""
            return result
        if status != TransactionStatus.INERROR:
            self._tell(connection, actor)
        return execute(sql, params, many, context)

    def _tell(self, connection: Any, actor: str) -> None:
        with connection.cursor() as cursor:
            set_actor(cursor, actor)
        self._told = actor


def attend(connection: Any) -> None:
    """Let Django's connection, which is open, do all of this."""
    wrappers = connection.execute_wrappers
    for wrapper in wrappers:
        if isinstance(wrapper, Captured):
            break
    else:
        wrapper = Captured()
        # The first is the outermost, and whoever adds one for a while pops the last.
        wrappers.insert(0, wrapper)
    raw = connection.connection
    other = _receivers.get(raw)
    if other is not None:
        raw.remove_notice_handler(other)
    raw.add_notice_handler(wrapper.hear)
    _receivers[raw] = wrapper.hear
