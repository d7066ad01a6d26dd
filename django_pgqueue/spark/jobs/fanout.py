"""
Fanout: a job for each row of a query or of files, spread over a window.

    manage.py pgqueue_pipeline run fanout -o task=shop.tasks.refresh
        -o query='SELECT id AS customer_id FROM shop_customer' -o divide_by=customer_id
        -o key=customer_id -o over=24h -o start=2026-11-22T00:00Z

Running the same command again makes no doubles: it has the same name. What it reads is
an option, so it is not for the queue, where others could change that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.spark.fanout import asked, write
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.run import Run
from django_pgqueue.spark.write.result import digest

SOURCES = ("query", "csv", "json", "parquet")

# For one kind of source alone.
NEEDS = {"schema": ("csv", "json"), "divide_by": ("query",)}

# A record that does not fit the schema is an error, and not a row of NULLs. In CSV, the
# first line names the columns.
FORMATS: Mapping[str, Mapping[str, str]] = {
    "csv": {"mode": "FAILFAST", "header": "true", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
    "parquet": {},
}

# Options that the writer calls otherwise.
WRITER = {
    "max_attempts": "maxAttempts",
    "expires_at": "expiresAt",
    "refused_path": "refusedPath",
}

# Of a name that nobody gave.
TASK_CHARACTERS = 40


@pipeline_job(name="fanout", in_queue=False, takes_out=())
def fanout(
    run: Run,
    *,
    task: str | None = None,
    query: str | None = None,
    csv: str | None = None,
    json: str | None = None,
    parquet: str | None = None,
    schema: str | None = None,
    divide_by: str | None = None,
    key: str | None = None,
    over: str | None = None,
    start: str | None = None,
    name: str | None = None,
    repeated: str = "refuse",
    queue: str | None = None,
    priority: str | None = None,
    max_attempts: str | None = None,
    expires_at: str | None = None,
    tags: str | None = None,
    refused_path: str | None = None,
) -> int:
    """Store a job for each row of a query or of files, spread over a window."""
    if task is None:
        raise SparkOptionError(
            "The option task is needed, and has no default: give it with -o task=…"
        )
    # Both are checked before Spark starts.
    read = _reading(run)
    given = {
        WRITER.get(option, option): value
        for option, value in run.options.items()
        if option not in (*SOURCES, *NEEDS, "task", "name")
    }
    said = asked(run, task, name=name or _name(run), **given)
    return write(run, read(), said)


def _reading(run: Run) -> Callable[[], Any]:
    """Return what reads the rows that the options name."""
    options = run.options
    given = [name for name in SOURCES if options[name] is not None]
    if len(given) != 1:
        raise SparkOptionError(
            f"Rows come from one of the options {', '.join(SOURCES)}; given are "
            f"{' and '.join(given) or 'none of them'}."
        )
    for name, kinds in NEEDS.items():
        if options[name] is not None and given[0] not in kinds:
            raise SparkOptionError(
                f"The option {name} is for {' and '.join(kinds)}, and not for "
                f"{given[0]}."
            )
    if given[0] == "query":
        return partial(run.query, options["query"], divide_by=options["divide_by"])
    return partial(_files, run, given[0])


def _files(run: Run, kind: str) -> Any:
    reader = run.session.read.format(kind).options(**FORMATS[kind])
    if run.options["schema"] is not None:
        reader = reader.schema(run.options["schema"])
    return reader.load(run.options[kind])


def _name(run: Run) -> str:
    """
    Return a name that is the same whenever the same is asked for.

    That is the same command; without a start, on the same day in UTC.
    """
    options = run.options
    # An option that is gone changes no name.
    of_all = digest({**options, "commit": "staged"})
    task = str(options["task"]).rpartition(".")[2][:TASK_CHARACTERS]
    when = options["start"] or f"{run.started_at:%Y-%m-%d}"
    return f"fanout {task} {when} {of_all}"
