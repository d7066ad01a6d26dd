"""
Enqueue: rows that a pipeline job has made become jobs, all of them or none, once.

What they become is checked first, and needs no Spark: see Run.enqueue().
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from django_pgqueue.spark import fanout
from django_pgqueue.spark.dsn import find_dsn
from django_pgqueue.spark.fanout import FanOut
from django_pgqueue.spark.write import once
from django_pgqueue.spark.write.columns import Columns
from django_pgqueue.spark.write.journal import WriteResult
from django_pgqueue.spark.write.options import parse

# Options of a write that a declared task has, and the columns that say it for a row.
OF_TASK = {"queue": "queue", "priority": "priority", "maxAttempts": "max_attempts"}


def asked(
    run: Any, task: str | None, *, name: str | None = None, **given: Any
) -> FanOut:
    """
    Return what rows are to become; the arguments are those of Run.enqueue().

    Raises:
        SparkOptionError: One of them cannot be, or nobody has declared the task.
    """
    if name is None:
        name = f"run {run.id} {uuid4().hex[:8]}"
    made = fanout.make(task=task, name=name, **given)
    if run.known_task is not None and made.task:
        run.known_task(made.task, made.options.get("queue"), None)
    return made


def write(run: Any, frame: Any, said: FanOut) -> int:
    """Write the rows, unless the name was written before; return how many jobs."""
    said = _with_task(run, frame, said)
    columns = fanout.check_frame(frame, said)
    if run.known_task is not None and said.task:
        run.known_task(said.task, None, _arguments(columns, frame.schema))
    dsn = find_dsn(run.session, parse(said.options).dsn)
    name = said.options["name"]
    # The run's own row says that no other one of this job is alive.
    before, now = once.look_up(dsn, name, takes_over=True)
    if before is not None:
        run.note(once.told(name, before, _summary(before, said)))
        return 0
    run.check()
    result = fanout.write(frame, said, dsn, now)
    run.rows_in += sum(filter(None, (result.written, result.skipped, result.refused)))
    run.note(f"{name!r}: {_summary(result, said)}.")
    return result.written or 0


def _with_task(run: Any, frame: Any, said: FanOut) -> FanOut:
    """Return *said* with what the task says of its jobs, but for what columns say."""
    if run.known_task is None or not said.task:
        return said
    of_task = run.known_task(said.task, said.options.get("queue"), None)
    given = {
        name: text
        for name, text in of_task.items()
        if OF_TASK.get(name) not in frame.columns
    }
    given.update(said.options)
    if {"tags"} <= of_task.keys() & said.options.keys():
        # A call adds its tags to those of the task.
        given["tags"] = f"{of_task['tags']},{said.options['tags']}"
    return replace(said, options=given)


def _arguments(columns: Columns, schema: Any) -> Sequence[str] | None:
    """Return the names of the arguments; None: only the rows know them."""
    if "args" in columns.found:
        return None
    if "kwargs" not in columns.found:
        return list(columns.fields)
    kind = schema[columns.found["kwargs"]].dataType
    return list(kind.names) if hasattr(kind, "names") else None


def _summary(result: WriteResult, said: FanOut) -> str:
    """Return the numbers of a write in words."""
    is_published = "topic" in said.options and "receiver" not in said.options
    parts = [f"{result.written or 0:,} {'messages' if is_published else 'jobs'}"]
    if result.skipped:
        is_wanted = "topic" not in said.options
        why = "whose dedup key is taken" if is_wanted else "which nobody wants"
        parts.append(f"{result.skipped:,} rows skipped, {why}")
    if result.refused:
        reasons = "; ".join(
            f"{reason}: {rows:,}" for reason, rows in result.reasons.items()
        )
        parts.append(f"{result.refused:,} rows refused ({reasons})")
    return ", ".join(parts)
