"""
Compact: many small files of a day and queue, or of a day and topic, rewritten into few.

Queries open each file, so that what writes often, or with many tasks, makes them slow.
It is Delta's own OPTIMIZE, in one commit.
"""

from __future__ import annotations

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.spark.job import pipeline_job
from django_pgqueue.spark.lake.table import (
    FILE_MB,
    LakeTable,
    checked_days,
    checked_target,
)
from django_pgqueue.spark.run import Run

MEGABYTE = 2**20
FILE_MB_MAX = 4_096


@pipeline_job(name="compact", chooses=("path",), takes_out=("archive", "log"))
def compact(
    run: Run,
    *,
    path: str = "",
    since: str = "",
    until: str = "",
    file_mb: int = FILE_MB,
) -> int:
    """
    Rewrite days of jobs, or of messages, that are in many small files into few.

    Options: path, where they are; since and until, the first and the last day; file_mb,
    megabytes (2**20 bytes) of a file, at most about.
    """
    target = checked_target(path)
    first, last = checked_days(since, until)
    if not 1 <= file_mb <= FILE_MB_MAX:
        raise SparkOptionError(
            f"The option file_mb is {file_mb:,}; it must be from 1 to {FILE_MB_MAX:,}."
        )
    return LakeTable(run, target).compact(first, last, file_mb * MEGABYTE)
