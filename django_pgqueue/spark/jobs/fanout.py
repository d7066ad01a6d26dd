"""
Fanout: a job for each row of a query or of files, spread over a window.

    manage.py pgqueue_pipeline run fanout -o task=shop.tasks.refresh
        -o query='SELECT id AS customer_id FROM shop_customer' -o divide_by=customer_id
        -o key=customer_id -o over=24h -o start=2026-11-22T00:00Z

Running the same command again makes no doubles: it has the same name. What it reads is
an option, so it is not for the queue, where others could change that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from django_pgqueue.exceptions import DeclarationError, SparkOptionError
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.places import Jobs, Query

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

# Of a name that nobody gave.
DIGEST_CHARACTERS = 12
TASK_CHARACTERS = 40


class Given:
    """A source: what the options name."""

    def check(self, plan: Any) -> None:
        """Raise SparkOptionError unless they name one, and it can be."""
        if self._kind(plan.options) == "query":
            self._query(plan.options).check(plan)

    def read(self, run: Any) -> Any:
        """Return its rows."""
        options = run.options
        kind = self._kind(options)
        if kind == "query":
            return self._query(options).read(run)
        reader = run.session.read.format(kind).options(**FORMATS[kind])
        if options["schema"] is not None:
            reader = reader.schema(options["schema"])
        return reader.load(options[kind])

    def _kind(self, options: Mapping[str, Any]) -> str:
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
        return given[0]

    def _query(self, options: Mapping[str, Any]) -> Query:
        try:
            return Query(options["query"], divide_by=options["divide_by"])
        except DeclarationError as error:
            raise SparkOptionError(str(error).removeprefix("Query: ")) from None


@dataclass(frozen=True, slots=True)
class Named(Jobs):
    """A sink: jobs, under a name that follows from the options."""

    def name_of(self, run: Any) -> str:
        """
        Return the option name, or what is the same whenever the same is asked for.

        That is the same command; without a start, on the same day in UTC.
        """
        options = run.options
        if options["name"] is not None:
            return str(options["name"])
        # Without those that are not given: an option to come changes no name.
        given = {name: said for name, said in options.items() if said is not None}
        told = json.dumps(given, sort_keys=True)
        digest = sha256(told.encode()).hexdigest()[:DIGEST_CHARACTERS]
        task = str(options["task"]).rpartition(".")[2][:TASK_CHARACTERS]
        when = options["start"] or f"{run.started_at:%Y-%m-%d}"
        return f"fanout {task} {when} {digest}"


@pipeline_job(
    name="fanout",
    sources={"rows": Given()},
    sinks={
        "jobs": Named(
            task="{task}",
            key="{key}",
            over="{over}",
            start="{start}",
            repeated="{repeated}",
            options={
                "queue": "{queue}",
                "priority": "{priority}",
                "maxAttempts": "{max_attempts}",
                "expiresAt": "{expires_at}",
                "tags": "{tags}",
                "refusedPath": "{refused_path}",
                "commit": "{commit}",
            },
        )
    },
    in_queue=False,
)
def fanout(
    rows: Any,
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
    commit: str = "staged",
) -> Any:
    """Store a job for each row of a query or of files, spread over a window."""
    return rows
