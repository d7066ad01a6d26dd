"""
A driver of the pipeline that stops itself at a place that a test names.

    python -m tests.pipeline.paused_driver DSN

Each line of its input is a run, as JSON: [job, options, place, call]. At its *call*th
call of *place*, "module:Class.function", it stops as by SIGSTOP, until the test lets it
go on. Its answer is a line, [state, error]. Spark's Java process, which is started by
the first job that asks for it, is not stopped.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from django_pgqueue.spark.job import find_job
from django_pgqueue.spark.jobs import erase, export, ingest
from django_pgqueue.spark.run import Plan
from django_pgqueue.spark.running import run_job
from django_pgqueue.spark.session import open_session

__all__ = ["erase", "export", "ingest"]

ANSWER = "answer "


@contextmanager
def stopping(place: str, call: int) -> Iterator[None]:
    """Let this process stop in front of the *call*th call of *place*."""
    module, _, path = place.partition(":")
    owner: Any = import_module(module)
    *above, name = path.split(".")
    for part in above:
        owner = getattr(owner, part)
    function: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def stopped(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            # This very thread: the process is told by its first one, and meanwhile
            # this one would go on, where it is another.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return function(*arguments, **named)

    setattr(owner, name, stopped)
    try:
        yield
    finally:
        setattr(owner, name, function)


def main(dsn: str, config: dict[str, str]) -> None:
    """Answer until the input ends."""
    opened: list[Any] = []

    @contextmanager
    def sessions() -> Iterator[Any]:
        if not opened:
            opened.append(
                open_session("paused", master="local[1]", dsn=dsn, config=config)
            )
            opened[0].sparkContext.setLogLevel("OFF")
        yield opened[0]

    for line in sys.stdin:
        name, options, place, call = json.loads(line)
        job = find_job(name)
        plan = Plan(
            job,
            job.read_options(options),
            dsn,
            sessions,
            by="paused",
            sign=lambda text: "signed",
        )
        with stopping(place, call):
            ended = run_job(plan, beat_seconds=0.2)
        sys.stdout.write(f"\n{ANSWER}{json.dumps([ended.state, ended.error])}\n")
        sys.stdout.flush()
    for spark in opened:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
