"""
As task: a pipeline job, run by a job of the queue.

Spark is hundreds of megabytes and a Java process; so the run is a process of its own,
and the worker is as slim afterwards as it was before.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import SparkError, SparkOptionError
from django_pgqueue.management.cli.output import EXIT_USAGE
from django_pgqueue.management.pipeline import supervise
from django_pgqueue.management.pipeline.plan import plan_of
from django_pgqueue.spark.job import check_destinations, find_job_for_queue
from django_pgqueue.spark.running import EXIT_BUSY, EXIT_STOPPED
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.raised import Cancel, Reject, Snooze

LOOK_SECONDS = 1.0

# Another run of the job is live: time and again, until it ends.
BUSY_SECONDS = 30.0

# Characters of its output that are kept: the end.
OUTPUT_CHARACTERS_MAX = 4_000


def run_in_queue(ctx: JobContext, job: str, options: Mapping[str, Any]) -> str:
    """
    Run the pipeline job *job* to its end.

    Raises:
        SparkError: It failed.
        Reject: There is no such job, the queue may not run it, it refuses an option,
            or the settings do not let it write there.
        Snooze: Another run of it is live.
        Cancel: The queue's job was cancelled, or its run was asked to stop.
    """
    try:
        find_job_for_queue(job)
        plan = plan_of(job, options)
        check_destinations(plan.job, plan.options, get_settings().destinations)
    except SparkOptionError as error:
        raise Reject(str(error)) from error
    said = ("--asked-by", f"job {ctx.id}", "--queue-job", str(ctx.id))
    with tempfile.TemporaryFile() as output:
        process = supervise.start(
            job, options, *said, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            is_cancelled = _watch(ctx, job, process)
        finally:
            supervise.end(process)
        output.seek(0)
        told = output.read().decode(errors="replace")[-OUTPUT_CHARACTERS_MAX:]
    if process.returncode == 0:
        return told.strip().splitlines()[-1] if told.strip() else ""
    if is_cancelled or _was_stopped(ctx, job, process):
        raise Cancel
    if process.returncode == EXIT_USAGE:
        raise Reject(told.strip())
    if process.returncode == EXIT_BUSY:
        raise Snooze(seconds=BUSY_SECONDS)
    raise SparkError(
        f"The pipeline job {job} ended with status {process.returncode}:\n{told}"
    )


def _watch(ctx: JobContext, job: str, process: subprocess.Popen[bytes]) -> bool:
    """Report progress until the process ends; True: it was stopped on request."""
    while process.poll() is None:
        if ctx.cancelled:
            return True
        row = _row_of(ctx, job, process)
        if row is not None:
            ctx.progress(row["rows_in"], note=row["progress"].get("phase"))
        time.sleep(LOOK_SECONDS)
    return False


def _was_stopped(ctx: JobContext, job: str, process: subprocess.Popen[bytes]) -> bool:
    """Return whether somebody has asked the run itself to stop, and it has."""
    if process.returncode != EXIT_STOPPED:
        return False
    # A signal ends it too, with a worker that is stopped: then it is to run again.
    row = _row_of(ctx, job, process)
    return row is not None and bool(row["was_asked_to_stop"])


def _row_of(
    ctx: JobContext, job: str, process: subprocess.Popen[bytes]
) -> dict[str, Any] | None:
    return supervise.asked(
        lambda cursor: supervise.row_of(cursor, job, process.pid, queue_job=ctx.id),
        None,
    )
