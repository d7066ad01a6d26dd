"""
Producers: processes that enqueue at the same time; started by contend.py.

    python -m django_pgqueue.management.bench.producers PLACE COUNT

A line of standard input says how many jobs each of them enqueues, and whether it wakes
workers; a line of standard output, how long that took.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

import django


def main(place: str, count: int) -> int:
    """Answer until standard input ends, or the benchmark is gone."""
    from django_pgqueue.management.bench.place import Place, isolated

    with isolated(Place.from_text(place)):
        django.setup()
        # Forked before there is a connection or a thread.
        context = multiprocessing.get_context("fork")
        ends = [context.Pipe() for _ in range(count)]
        # Each closes all of ours that it inherits: the end of one is not seen before
        # the last copy of the other is closed.
        all_ours = [ours for ours, _ in ends]
        for _, theirs in ends:
            context.Process(
                target=produce, args=(all_ours, theirs), daemon=True
            ).start()
            theirs.close()
        _serve([ours for ours, _ in ends])
    return 0


def _serve(producers: list[Any]) -> None:
    from django_pgqueue.management.bench.subprocesses import stop_with

    stop_with(os.getppid())
    for line in sys.stdin:
        asked = json.loads(line)
        for producer in producers:
            producer.send(asked)
        for producer in producers:
            producer.recv()  # It is ready.
        for producer in producers:
            producer.send(None)
        spans = [producer.recv() for producer in producers]
        seconds = max(end for _, end in spans) - min(start for start, _ in spans)
        sys.stdout.write(json.dumps({"seconds": seconds}) + "\n")
        sys.stdout.flush()


def produce(others: list[Connection[Any, Any]], pipe: Connection[Any, Any]) -> None:
    """Be one of the processes, until the other end of the pipe is gone."""
    from django.db import connections, transaction

    from django_pgqueue.conf import get_settings
    from django_pgqueue.management.bench.place import changed
    from django_pgqueue.management.bench.tasks import immediate, payloads
    from django_pgqueue.tasks import enqueuer

    for other in others:
        other.close()
    alias = get_settings().database
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        items = payloads(asked["jobs"])
        with ExitStack() as stack:
            if not asked["wakes"]:
                stack.enter_context(changed(enqueuer, "wake_after_commit", no_wake))
            connections[alias].ensure_connection()
            pipe.send("ready")
            pipe.recv()
            started = time.monotonic()
            for item in items:
                with transaction.atomic(using=alias):
                    immediate.delay(**item)
            ended = time.monotonic()
        pipe.send((started, ended))


def no_wake(*args: Any, **kwargs: Any) -> None:
    """What the producers call instead of wake_after_commit()."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
