"""
Queue: a queue without tasks, whose messages clients send and receive.

    thumbs = queue("thumbs", visibility="60s", max_receives=5)
    thumbs.send({"path": "a.jpg"})

    for message in thumbs.receive(10, wait="20s"):
        with message:
            resize(message.payload["path"])

Every call is one statement, that of any other client (docs/reference/pull-queues.md).
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, TypeVar

from django.db import ProgrammingError, connections, transaction

from django_pgqueue.bounds import (
    ATTEMPTS_MAX,
    KEY_CHARACTERS_MAX,
    PRIORITY_DEFAULT,
    QUEUE_DEFAULT,
)
from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import (
    DeclarationError,
    InvalidOption,
    PayloadTooLarge,
    check_whole,
    raised_as,
    shown,
)
from django_pgqueue.models import Queue
from django_pgqueue.options.checks import check_priority, check_queue
from django_pgqueue.options.durations import Duration, as_timedelta
from django_pgqueue.options.marks import check_headers
from django_pgqueue.options.table import takes
from django_pgqueue.postgres.wake import wake_after_commit
from django_pgqueue.pull.message import PullMessage
from django_pgqueue.queues import pull as storage
from django_pgqueue.queues.pull import Answer, DeclaredQueue, Sending
from django_pgqueue.tasks import database, operate, payload, pull_queues, registry
from django_pgqueue.tasks.database import queue_connection
from django_pgqueue.tasks.errors import way_out
from django_pgqueue.tasks.waiting import await_until, wait_until

T = TypeVar("T")

# What ack() and its like take: messages, receipts, or one of them.
Receipts = PullMessage | str | Iterable[PullMessage | str]

# Of a payload: the group that its message is in.
GroupOf = str | Callable[[Any], str | None] | None

# PostgreSQL's code for a queue that nobody has declared to the database yet.
UNDECLARED = "42704"

EMPTY = "{}"

# Where the queue holds as many as it may: see tasks/depth.py.
WAYS = (
    "Try again later, or run more receivers.",
    "transaction.on_commit(lambda: queue.send(…))",
)

# Of redrive(), unless it is told otherwise; and of each statement of it and purge().
REDRIVE_MAX = 100_000
CHUNK = 1_000


async def _patiently(call: functools.partial[T]) -> T:
    """Call in the thread of Django's connections what a queue sends, given room."""
    if get_settings().depth_limit(call.args[0].name) is None:
        return await database.in_thread(call)
    from django_pgqueue.tasks import depth

    return await depth.patiently(call)


class PullQueue:
    """A pull queue, by its name; queue() makes one."""

    __slots__ = ("_said", "name")

    def __init__(self, said: DeclaredQueue) -> None:
        self.name = said.name
        self._said = said

    def send(
        self,
        value: Any,
        *,
        delay: Duration | None = None,
        group: str | None = None,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        priority: int = PRIORITY_DEFAULT,
        expires: Duration | None = None,
    ) -> int:
        """
        Send one message, in the caller's transaction: one query.

        Args:
            value: The payload: any value that can travel as a task's argument.
            delay: How long nobody receives it; up to 366 days.
            group: A text of 1 to 128 characters: its messages come one at a time, in
                order, the next one when the one before has ended.
            key: A text of 1 to 255 characters: while a message of the queue that has
                it is not acked, nothing is sent, and that one's id is returned. Not
                together with a group.
            headers: A dict for whoever receives it; reserved keys are refused.
            priority: -100 to 100; the higher comes first.
            expires: After how long it goes to the archive in place of a receiver.

        Returns:
            The message's id.

        Raises:
            InvalidArgument: The payload cannot travel as JSON.
            InvalidOption: An option is out of its range.
            PayloadTooLarge: It exceeds PGQUEUE['PAYLOAD_BYTES_MAX'].
            QueueFull: The queue holds as many as PGQUEUE['QUEUES'] says.
            WrongDatabase: A transaction is open on another alias than the queue's.
        """
        group = _text("group", group, storage.GROUP_CHARACTERS_MAX)
        key = _text("key", key, KEY_CHARACTERS_MAX)
        if group is not None and key is not None:
            raise InvalidOption(
                f"send(group={group!r}, key={key!r}): a message has one of the two."
            )
        sending = self._sending(delay, headers, priority, expires)
        text = self._encoded(value, len(sending.headers.encode()))
        with way_out("send()", "queue.asend(…)"):
            connection = queue_connection(self.name, get_settings().database)
            self._admit(connection, 1)
            with connection.cursor() as cursor:
                message_id = storage.send(
                    cursor,
                    self._said,
                    sending,
                    payload=text,
                    lane=group,
                    dedup_key=key,
                )
        self._wake(connection)
        return message_id

    asend = database.twin(send, run=_patiently)

    def send_many(
        self,
        values: Iterable[Any],
        *,
        delay: Duration | None = None,
        group: GroupOf = None,
        headers: Mapping[str, Any] | None = None,
        priority: int = PRIORITY_DEFAULT,
        expires: Duration | None = None,
    ) -> list[int]:
        """
        Send many messages: all or nothing, one statement per 10,000.

        Args:
            values: Their payloads.
            delay: As send() has it, for all of them; so are those below.
            group: That of all, or a function that is given a payload and returns its
                group, or None.
            headers: Of each message.
            priority: Of each message.
            expires: Of each message.

        Returns:
            Their ids, in the order of the values.

        Raises:
            InvalidArgument, InvalidOption, PayloadTooLarge, QueueFull, WrongDatabase:
                As send(); nothing is sent.
        """
        sending = self._sending(delay, headers, priority, expires)
        extra = len(sending.headers.encode())
        texts: list[str] = []
        groups: list[str | None] = []
        for value in values:
            of_it = group(value) if callable(group) else group
            groups.append(_text("group", of_it, storage.GROUP_CHARACTERS_MAX))
            texts.append(self._encoded(value, extra))
        ids: list[int] = []
        if not texts:
            return ids
        with way_out("send_many()", "queue.asend_many(…)"):
            connection = queue_connection(self.name, get_settings().database)
            self._admit(connection, len(texts))
            with transaction.atomic(using=connection.alias):
                with connection.cursor() as cursor:
                    for start in range(0, len(texts), storage.MESSAGES_MAX):
                        some = slice(start, start + storage.MESSAGES_MAX)
                        ids += storage.send_many(
                            cursor,
                            self._said,
                            sending,
                            payloads=f"[{','.join(texts[some])}]",
                            lanes=groups[some] if group is not None else None,
                        )
                self._wake(connection)
        return ids

    asend_many = database.twin(send_many, run=_patiently)

    def receive(
        self,
        limit: int = 1,
        *,
        wait: Duration = 0,
        visibility: Duration | None = None,
    ) -> list[PullMessage]:
        """
        Receive the next messages; each is ours until its visibility ends.

        Call it outside of transactions: until theirs ends, nobody knows whether the
        messages were received.

        Args:
            limit: How many at most, 1 to 1,000.
            wait: How long to wait for the first; the call returns with what there is
                then, and does not wait for more.
            visibility: 1 s to 12 h; None: what the queue says.

        Returns:
            Those of the highest priority first, then those that became due first; none
            when the time is over.

        Raises:
            InvalidOption: A value is out of its range.
        """
        look = self._look(limit, visibility)
        timeout = _duration("wait", wait)
        if not timeout:
            return look()
        found: list[PullMessage] = []

        def has_some() -> bool:
            found.extend(look())
            return bool(found)

        wait_until([f"{storage.HINT}{self.name}"], timeout, has_some, self._due_in)
        return found

    async def areceive(
        self,
        limit: int = 1,
        *,
        wait: Duration = 0,
        visibility: Duration | None = None,
    ) -> list[PullMessage]:
        """Receive the next messages from async code; as receive()."""
        look = self._look(limit, visibility)
        found: list[PullMessage] = []

        def has_some() -> bool:
            found.extend(look())
            return bool(found)

        names = [f"{storage.HINT}{self.name}"]
        await await_until(names, _duration("wait", wait), has_some, self._due_in)
        return found

    def ack(self, messages: Receipts) -> Answer:
        """
        End messages: they are done, and go to the archive. In one statement.

        In a transaction with what they have caused, both happen or neither.

        Args:
            messages: One or many, or their receipts; each 1,000 are a statement.

        Returns:
            How many were ours, and the receipts of those that were not any more.

        Raises:
            InvalidOption: One is no message and no receipt.
        """
        return self._settle(storage.ACK, messages)

    aack = database.twin(ack)

    def nack(
        self, messages: Receipts, delay: Duration = 0, *, error: str | None = None
    ) -> Answer:
        """
        Give messages back. Those that were received often enough become dead letters.

        Args:
            messages: As ack().
            delay: When they are due again: at once, or up to 366 days later. In a
                group, the others wait for as long.
            error: Why, for whoever looks at the message; 10,000 characters are kept.

        Returns:
            As ack(), and how many became dead letters.
        """
        return self._settle(
            storage.NACK, messages, wakes=True, delay=_delay(delay), error=error
        )

    anack = database.twin(nack)

    def reject(self, messages: Receipts, reason: str | None = None) -> Answer:
        """
        Make messages dead letters at once: no receiver can do anything with them.

        Args:
            messages: As ack().
            reason: Why, for whoever looks at them; 10,000 characters are kept.

        Returns:
            As ack().
        """
        return self._settle(storage.REJECT, messages, reason=reason)

    areject = database.twin(reject)

    def extend(self, messages: Receipts, visibility: Duration) -> Answer:
        """
        Keep messages for *visibility* from now on, 1 s to 12 h.

        Returns:
            As ack().
        """
        seconds = _visibility(visibility)
        return self._settle(storage.EXTEND, messages, visibility=seconds)

    aextend = database.twin(extend)

    def redrive(self, limit: int = REDRIVE_MAX) -> int:
        """
        Send dead letters of this queue back to it, the oldest first.

        Args:
            limit: How many at most, from 1.

        Returns:
            How many. Those whose key another message has stay where they are.
        """
        _check_limit("redrive", limit, None)
        done = 0
        with database.transaction() as (connection, cursor):
            after = 0
            while done < limit:
                ids = storage.letters(
                    cursor, self.name, after=after, limit=min(limit - done, CHUNK)
                )
                if not ids:
                    break
                done, after = done + len(operate.redrive(ids)), ids[-1]
            if done:
                self._wake(connection)
        return done

    aredrive = database.twin(redrive)

    def purge(self) -> int:
        """
        End all messages that wait; return how many. They go to the archive, cancelled.

        What was received stays with its receiver, and what is sent meanwhile may stay.
        Each 1,000 are a transaction, unless one is open.
        """
        done = 0
        while True:
            with database.cursor() as cursor:
                ids = storage.waiting(cursor, self.name, limit=CHUNK)
            cancelled = len(operate.cancel(ids).cancelled) if ids else 0
            done += cancelled
            if not cancelled:
                return done

    apurge = database.twin(purge)

    def __repr__(self) -> str:
        return f"queue({self.name!r})"

    def _admit(self, connection: Any, messages: int) -> None:
        """Return when there is room; QueueFull: there is none."""
        limit = get_settings().depth_limit(self.name)
        if limit is not None:
            from django_pgqueue.tasks import depth

            ways = depth.Ways(*WAYS)
            depth.admit(self, connection, self.name, limit, messages, ways)

    def _sending(
        self,
        delay: Duration | None,
        headers: Mapping[str, Any] | None,
        priority: int,
        expires: Duration | None,
    ) -> Sending:
        text = EMPTY
        if headers:
            checked = dict(check_headers(headers))
            text = payload.encode_at(self.name, "headers", checked)
        return Sending(
            delay=None if delay is None else _delay(delay),
            expires=None if expires is None else _delay(expires, "expires"),
            headers=text,
            priority=check_priority(priority),
        )

    def _encoded(self, value: Any, extra: int) -> str:
        text = payload.encode_at(self.name, "payload", value)
        size, most = len(text.encode()) + extra, get_settings().payload_bytes_max
        if size > most:
            raise PayloadTooLarge(
                task=self.name,
                payload_bytes=size,
                payload_bytes_max=most,
                what="payload and headers",
            )
        return text

    def _look(
        self, limit: int, visibility: Duration | None
    ) -> Callable[[], list[PullMessage]]:
        """Return what receives at once, of values that are checked."""
        _check_limit("receive", limit, storage.RECEIVE_MAX)
        seconds = (
            self._said.visibility_seconds
            if visibility is None
            else _visibility(visibility)
        )

        def look() -> list[PullMessage]:
            with way_out("receive()", "queue.areceive(…)"):
                return self._receive(limit, seconds)

        return look

    def _receive(self, limit: int, seconds: float | None) -> list[PullMessage]:
        """Receive once; first make the queue, if the database has none of this name."""

        def receive() -> list[storage.Row]:
            with database.cursor() as cursor:
                return storage.receive(
                    cursor,
                    self.name,
                    limit=limit,
                    visibility_seconds=seconds,
                    receiver=_receiver(),
                )

        connection = connections[get_settings().database]
        # Only an open transaction has to outlive a refusal.
        guard = transaction.atomic if connection.in_atomic_block else nullcontext
        try:
            with guard(connection.alias):
                rows = receive()
        except ProgrammingError as error:
            if getattr(error.__cause__, "sqlstate", None) != UNDECLARED:
                raise
            with connection.cursor() as cursor:
                storage.declare(cursor, self._said, changes=False)
            rows = receive()
        return [PullMessage(self, row) for row in rows]

    def _due_in(self) -> float | None:
        with database.cursor() as cursor:
            return storage.due_in(cursor, self.name)

    def _settle(
        self, statement: str, messages: Receipts, *, wakes: bool = False, **params: Any
    ) -> Answer:
        receipts = _receipts(messages)
        if not receipts:
            return Answer(0, [])
        with database.transaction() as (connection, cursor):
            answer = storage.settle(cursor, statement, receipts, **params)
            if wakes and answer.done:
                self._wake(connection)
        return answer

    def _wake(self, connection: Any) -> None:
        wake_after_commit(connection, f"{storage.HINT}{self.name}")


@takes("queue()", InvalidOption, {})
def queue(
    name: str, *, visibility: Duration | None = None, max_receives: int | None = None
) -> PullQueue:
    """
    Declare a pull queue: what is sent to it, clients receive, and no worker.

        thumbs = queue("thumbs", visibility="60s", max_receives=5)

    Args:
        name: As that of any queue, but for "default". No task may use it.
        visibility: For how long a message is its receiver's, 1 s to 12 h; by default
            30 s.
        max_receives: How often a message is received at most, 1 to 32,767, before it
            becomes a dead letter; by default 5.

    Raises:
        DeclarationError: Another declaration of it says something else, or a task uses
            it.
        InvalidOption: A value is out of its range, or there is no such option.
    """
    check_queue(name)
    if name == QUEUE_DEFAULT:
        raise InvalidOption(
            f"queue({name!r}): that is a queue of tasks; choose another."
        )
    if max_receives is not None:
        check_whole("max_receives={}", max_receives, ATTEMPTS_MAX, InvalidOption)
    said = DeclaredQueue(
        name=name,
        visibility_seconds=None if visibility is None else _visibility(visibility),
        max_receives=max_receives,
    )
    for declared in registry.declared_names():
        if registry.find_task(declared).options.queue == name:
            raise DeclarationError(
                f"queue({name!r}): the task {declared} uses it, whose jobs nobody "
                f"would run in a pull queue. Choose another name."
            )
    pull_queues.declare(said)
    return PullQueue(said)


def _receiver() -> str:
    """Return what stands in leased_by, for people: the host and the process."""
    return f"{socket.gethostname()}:{os.getpid()}"[-100:]


def _check_limit(call: str, limit: object, most: int | None) -> None:
    if (
        isinstance(limit, bool)
        or not isinstance(limit, int)
        or limit < 1
        or (most is not None and limit > most)
    ):
        to = "on" if most is None else f"to {most:,}"
        raise InvalidOption(
            f"{call}({shown(limit)}): it must be a whole number from 1 {to}."
        )


def _receipts(messages: Receipts) -> Sequence[str]:
    """Return the receipts, checked."""
    given = [messages] if isinstance(messages, (PullMessage, str)) else messages
    receipts: list[str] = []
    for each in given:
        text = each.receipt if isinstance(each, PullMessage) else each
        if not isinstance(text, str) or not storage.RECEIPT.fullmatch(text):
            raise InvalidOption(
                f"{shown(each)} is no receipt: give what receive() has returned, or "
                f"its receipt, such as '4711:2'."
            )
        receipts.append(text)
    return receipts


def _text(name: str, value: str | None, characters_max: int) -> str | None:
    if value is None:
        return None
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= characters_max
        or "\x00" in value
    ):
        raise InvalidOption(
            f"{name}={shown(value)}: it must be a text of 1 to {characters_max} "
            f"characters."
        )
    return value


def _duration(name: str, value: Duration) -> timedelta:
    with raised_as(InvalidOption):
        return as_timedelta(value, name=name)


def _delay(value: Duration, name: str = "delay") -> float:
    seconds = _duration(name, value).total_seconds()
    if seconds > storage.DELAY_SECONDS_MAX:
        raise InvalidOption(f"{name}={shown(value)}: it must be at most 366 days.")
    return seconds


def _visibility(value: Duration) -> float:
    seconds = _duration("visibility", value).total_seconds()
    if not storage.VISIBILITY_SECONDS_MIN <= seconds <= storage.VISIBILITY_SECONDS_MAX:
        raise InvalidOption(
            f"visibility={shown(value)}: it must be from 1 second to 12 hours."
        )
    return seconds


# Known --------------------------------------------------------------------------------


def known_names() -> list[str]:
    """Return the names of all pull queues, in order."""
    stored = Queue.objects.using(get_settings().database).filter(kind="pull")
    declared = {each.name for each in pull_queues.declared()}
    return sorted(declared.union(stored.values_list("name", flat=True)))


def known_queue(name: str) -> PullQueue | None:
    """
    Return the pull queue of this *name*, as code declares it or else as it is stored.

    None: there is none; unlike queue(), this makes none.
    """
    for declared in pull_queues.declared():
        if declared.name == name:
            return PullQueue(declared)
    stored = Queue.objects.using(get_settings().database)
    if not stored.filter(name=name, kind="pull").exists():
        return None
    return PullQueue(DeclaredQueue(name=name))
