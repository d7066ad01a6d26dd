"""Message: what a receiver of a pull queue is given."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Any, Protocol, Self

from django.db import connections, transaction

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import LeaseLost
from django_pgqueue.options.durations import Duration
from django_pgqueue.queues.pull import Answer, Row
from django_pgqueue.tasks.database import in_thread, twin
from django_pgqueue.tasks.payload import decode_value


class Verbs(Protocol):
    """What a message asks of its queue; PullQueue has it, and tells each."""

    @property
    def name(self) -> str: ...
    def ack(self, message: PullMessage, /) -> Answer: ...
    def nack(
        self, message: PullMessage, delay: Duration, /, *, error: str | None
    ) -> Answer: ...
    def reject(self, message: PullMessage, reason: str | None, /) -> Answer: ...
    def extend(self, message: PullMessage, visibility: Duration, /) -> Answer: ...


class PullMessage:
    """
    A message that was received: this receiver's until its visibility ends.

        with message:
            resize(message.payload["path"])

    The block acks it when it ends, and gives it back when it fails. With
    message.atomic() in place of message, what the block writes to the database of the
    queue and the ack are one transaction.

    Attributes:
        queue: Where it was received.
        id: Its id, which it keeps whatever becomes of it.
        receipt: A text, its id and delivery; whoever has it can ack the message.
        deliveries: How often it was received, this time included.
        group: Whose messages come one at a time and in order; None: it has none.
        sent_at: By the database's clock, as all times.
        received_at: When it was received.
    """

    def __init__(self, queue: Verbs, row: Row) -> None:
        self.queue = queue
        self.id = row.id
        self.receipt = row.receipt
        self.deliveries = row.deliveries
        self.group = row.lane
        self.sent_at: datetime = row.sent_at
        self.received_at: datetime = row.received_at
        self._row = row

    @cached_property
    def payload(self) -> Any:
        """
        The value that was sent.

        Raises:
            UndecodablePayload: A client has sent what Python cannot read.
            Reject: It refers to a row that no longer exists.
        """
        return decode_value(self._row.payload)

    @property
    def stored_payload(self) -> Any:
        """The JSON as it is stored, as other clients see it; a text that is no JSON."""
        try:
            return json.loads(self._row.payload)
        except (ValueError, RecursionError):
            return self._row.payload

    @cached_property
    def headers(self) -> Mapping[str, Any]:
        """What was sent along with it."""
        headers: dict[str, Any] = json.loads(self._row.headers)
        return headers

    def ack(self) -> bool:
        """End it: it is done. False: it is another receiver's by now."""
        return self._is_written(self.queue.ack(self))

    def nack(self, delay: Duration = 0, *, error: str | None = None) -> bool:
        """Give it back, to be due again after *delay*; as PullQueue.nack()."""
        return self._is_written(self.queue.nack(self, delay, error=error))

    def reject(self, reason: str | None = None) -> bool:
        """Make it a dead letter; as PullQueue.reject()."""
        return self._is_written(self.queue.reject(self, reason))

    def extend(self, visibility: Duration) -> bool:
        """Keep it for *visibility* from now on; as PullQueue.extend()."""
        return self._is_written(self.queue.extend(self, visibility))

    aack = twin(ack)

    anack = twin(nack)

    areject = twin(reject)

    aextend = twin(extend)

    @contextmanager
    def atomic(self) -> Iterator[Self]:
        """
        Open a transaction, or a savepoint, that ends with the ack.

        So what the block writes happens once: also when this process dies, or another
        receiver has the message by then. A block that fails is rolled back, and then
        the message is given back.

        Raises:
            LeaseLost: It was not ours any more; all is rolled back.
        """
        try:
            with transaction.atomic(using=get_settings().database):
                yield self
                if not self.ack():
                    raise LeaseLost(self.id, self.deliveries)
        except LeaseLost:
            raise
        except BaseException as error:
            self._give_back(error)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """
        Ack, or give back with the error's text.

        Raises:
            LeaseLost: It was not ours any more, so another receiver may have done the
                same: a transaction around it must not commit.
        """
        if error is None:
            if not self.ack():
                raise LeaseLost(self.id, self.deliveries)
        else:
            self._give_back(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ack or give back; as __exit__()."""
        await in_thread(self.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return f"<PullMessage {self.receipt} of {self.queue.name!r}>"

    def _give_back(self, error: BaseException) -> None:
        connection = connections[get_settings().database]
        # In a transaction that has failed it comes back as its visibility ends.
        if not (connection.in_atomic_block and connection.needs_rollback):
            self.nack(error=_told(error))

    def _is_written(self, answer: Answer) -> bool:
        return not answer.stale


def _told(error: BaseException) -> str:
    try:
        return f"{type(error).__qualname__}: {error}"
    except Exception:
        return type(error).__qualname__
