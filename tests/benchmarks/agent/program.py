"""
Program: the three words that the program of a Python peer obeys.

    python -m tests.benchmarks.peers.NAME.program setup|produce|work [OPTIONS]

The server and the database stand in libpq's environment variables. OPTIONS, and each
order to a producer, are JSON; orders come on standard input, a line each, and the
answers go to standard output.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

# With it, the arguments of a job take about 100 bytes as JSON.
NOTE = "x" * 72

Items = list[dict[str, Any]]


class Producer(Protocol):
    """
    Enqueues. Each method may be a coroutine function instead.

    *options* are those of the configuration whose workers are up.
    """

    def enqueue(self, items: Items, options: dict[str, Any]) -> Any:
        """Enqueue one by one, a commit each."""

    def bulk(self, items: Items, options: dict[str, Any]) -> Any:
        """Enqueue all in the quickest way that there is."""

    def commit_one(self, items: Items, options: dict[str, Any]) -> Any:
        """Enqueue in a transaction; return the clock right before COMMIT is sent."""

    def commit_many(self, items: Items, options: dict[str, Any]) -> Any:
        """As bulk(), in a transaction; return the clock right after its COMMIT."""


def run(
    *,
    setup: Callable[[], Any],
    producer: Callable[[], Producer],
    work: Callable[[dict[str, Any]], None],
) -> None:
    """Do what the command line says."""
    word, *rest = sys.argv[1:]
    if word == "setup":
        made = setup()
        if inspect.iscoroutine(made):
            asyncio.run(made)
    elif word == "produce":
        _obey(producer())
    else:
        work(json.loads(rest[0]))


def payloads(first: int, count: int) -> Items:
    """Return the arguments of *count* jobs, numbered from *first*."""
    return [{"order_id": n, "note": NOTE} for n in range(first, first + count)]


def _obey(producer: Producer) -> None:
    # Whatever a library prints belongs into the log.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            order = json.loads(line)
            items = payloads(order["first"], order["count"])
            method = getattr(producer, order["do"])
            started = time.perf_counter()
            answer = method(items, order["options"])
            if inspect.iscoroutine(answer):
                answer = runner.run(answer)
            seconds = time.perf_counter() - started
            answers.write(json.dumps({"seconds": seconds, "clock": answer}) + "\n")
