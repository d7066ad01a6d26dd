"""
The pipeline of this app, found as that of any other: by its module `pipelines`.

Importing it declares the task by which the queue itself runs any pipeline job. The
package's own jobs are declared when somebody asks for one: see spark/job.py.
"""

from __future__ import annotations

from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.declare import task

QUEUE = "pgqueue_pipeline"

__all__ = ["QUEUE", "run_pipeline"]


@task(name="django_pgqueue.run_pipeline", queue=QUEUE, retries=2, takes_context=True)
def run_pipeline(
    ctx: JobContext, /, job: str, **options: str | int | float | bool
) -> str:
    """
    Run the pipeline job *job* in a process of its own; return what that printed.

    Where a run is live already, it comes again in half a minute. A cancelled job stops
    its run, and a run that was asked to stop ends its job as cancelled.
    """
    # What runs it stays out of processes that only enqueue it.
    from django_pgqueue.management.pipeline.as_task import run_in_queue

    return run_in_queue(ctx, job, options)
