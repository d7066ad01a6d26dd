"""pgqueue_pipeline list: the declared pipeline jobs, and how each one's run went."""

from __future__ import annotations

from typing import Any

from django_pgqueue.management.cli.output import EXIT_DONE, Output
from django_pgqueue.operators.human import duration
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.spark.job import declared_jobs
from django_pgqueue.spark.running import options_text
from django_pgqueue.tasks import database

HELP = "Name the pipeline jobs, with their options."


def add_arguments(parser: Any) -> None:
    """Take no arguments."""


def run(options: dict[str, Any], out: Output) -> int:
    """Print a line for each job."""
    with database.cursor() as cursor:
        runs = {row["job"]: row for row in pipelines.latest(cursor, job=None, limit=1)}
    jobs = declared_jobs()
    if out.as_json:
        out.json(
            {
                "jobs": [
                    {
                        "name": job.name,
                        "options": dict(job.options),
                        "chooses": list(job.chooses),
                        "takes_out": job.takes_out,
                        "summary": job.summary,
                        "last_state": runs.get(job.name, {}).get("state"),
                    }
                    for job in jobs
                ]
            }
        )
        return EXIT_DONE
    rows = []
    for job in jobs:
        last = runs.get(job.name)
        rows.append(
            {
                "job": job.name,
                "last run": last["state"] if last else "",
                "took": duration(last["seconds"]) if last else "",
                "options": options_text(job.options),
                "what it does": job.summary,
            }
        )
    out.table(rows)
    return EXIT_DONE
