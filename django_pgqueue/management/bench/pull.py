"""
pull: messages that are sent, received and acked, beside PGMQ's statements.

In batches of 1, 10 and 100, a commit for each batch and verb, on a plain connection:
what a client in any language has of it. The two sides take turns batch by batch, since
what a commit waits for changes from one second to the next.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from django_pgqueue.management.bench import yardstick, yardstick_pull
from django_pgqueue.management.bench.measure import (
    Measure,
    Opener,
    Pair,
    Plan,
    Run,
    at_least,
)
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import payloads

QUEUE = "pgqueue_bench"
SIZES = (1, 10, 100)
# Of each verb in a run: those of single messages take longest.
CALLS_MAX = 500

# Locks: those of the functions, as in queues/pull.py.
DECLARE = "SELECT pgqueue_declare_queue(%s, 60, 5)"
SEND = "SELECT pgqueue_send(%s, %s::jsonb, wakes => false)"
SEND_MANY = "SELECT pgqueue_send_many(%s, %s::jsonb, wakes => false)"
RECEIVE = (
    "SELECT receipt, id, deliveries, payload, headers FROM pgqueue_receive(%s, %s)"
)
ACK = "SELECT pgqueue_ack(%s)"


class Pull:
    """Both sides send all, receive all and ack all, in batches of one size."""

    def __init__(
        self, scratch: Scratch, connection: yardstick.Connection, size: int
    ) -> None:
        self._scratch = scratch
        self._connection = connection
        self._size = size

    def pair(self, jobs: int) -> Pair:
        """Measure both sides, messages a second; of the product also each verb."""
        calls = min(max(jobs // self._size, 1), CALLS_MAX)
        messages = calls * self._size
        self._scratch.empty()
        self._connection.execute(DECLARE, [QUEUE])
        batches = [payloads(self._size) for _ in range(calls)]
        sent = self._in_turns(_send, yardstick_pull.send, batches, batches)
        ours, theirs = self._received(calls)
        acked = self._in_turns(_ack, yardstick_pull.ack, ours[0], theirs[0])
        seconds = [sent, (ours[1], theirs[1]), acked]
        product, other = (sum(side) for side in zip(*seconds, strict=True))
        ratios = {
            f"{verb}/PGMQ": pgmq / own
            for verb, (own, pgmq) in zip(
                ("send", "receive", "ack"), seconds, strict=True
            )
        }
        return Pair(Run([messages / product], ratios), Run([messages / other]))

    def _received(self, calls: int) -> tuple[tuple[Any, float], tuple[Any, float]]:
        """Return what each side has received, and its seconds."""
        ours: list[Any] = []
        theirs: list[Any] = []
        own, other = self._in_turns(
            lambda at, size: ours.append(_receive(at, size)),
            lambda at, size: theirs.append(yardstick_pull.receive(at, size)),
            *[[self._size] * calls] * 2,
        )
        return (ours, own), (theirs, other)

    def _in_turns(
        self,
        own: Callable[[yardstick.Connection, Any], None],
        other: Callable[[yardstick.Connection, Any], None],
        own_batches: Sequence[Any],
        other_batches: Sequence[Any],
    ) -> tuple[float, float]:
        """Call both with each of their batches; return the seconds of each side."""
        seconds = [0.0, 0.0]
        for batches in zip(own_batches, other_batches, strict=True):
            for side, call in enumerate((own, other)):
                started = time.perf_counter()
                call(self._connection, batches[side])
                seconds[side] += time.perf_counter() - started
        return seconds[0], seconds[1]


def _send(connection: yardstick.Connection, batch: Sequence[Any]) -> None:
    statement = SEND if len(batch) == 1 else SEND_MANY
    text = json.dumps(batch[0] if len(batch) == 1 else batch)
    connection.execute(statement, [QUEUE, text]).fetchall()


def _receive(connection: yardstick.Connection, size: int) -> list[str]:
    rows = connection.execute(RECEIVE, [QUEUE, size]).fetchall()
    return [row[0] for row in rows]


def _ack(connection: yardstick.Connection, receipts: list[str]) -> None:
    connection.execute(ACK, [" ".join(receipts)]).fetchall()


@contextmanager
def _opened(scratch: Scratch, plan: Plan, *, size: int) -> Iterator[Pull]:
    with scratch.connect() as connection:
        yield Pull(scratch, connection, size)


PARTS: dict[str, Opener] = {str(size): partial(_opened, size=size) for size in SIZES}

PULL = Measure(
    name="pull",
    what="messages sent, received and acked in batches of 1, 10 and 100",
    unit="msg/s",
    jobs=5_000,
    goals=(at_least(0.8),),
    baseline="PGMQ's statements",
    other_side="PGMQ",
    parts=PARTS,
)
