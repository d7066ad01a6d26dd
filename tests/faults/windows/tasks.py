"""
Tasks of every settle strength, and the file in which they record their runs.

Records have a few bytes, so that the file does not slow the jobs down. Each is one
O_APPEND write, so a kill leaves only whole records behind.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from django.db import connection

from django_pgqueue import task
from django_pgqueue.tasks.context import JobContext
from tests.faults.ledger import FOLDER

RECORD = struct.Struct("<qiB")  # Job, process, what happened.
STARTED, RETURNED = 0, 1

NAME = "executions"

EFFECT = "INSERT INTO faults_effect (job, delivery, key) VALUES (%s, 0, '')"


@cache
def _file(pid: int) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.open(Path(os.environ[FOLDER]) / NAME, flags, 0o600)


@contextmanager
def recorded(ctx: JobContext, seconds: float) -> Iterator[None]:
    """Record the start and the end of a job that takes *seconds*."""
    pid = os.getpid()
    os.write(_file(pid), RECORD.pack(ctx.id, pid, STARTED))
    yield
    if seconds:
        time.sleep(seconds)
    os.write(_file(pid), RECORD.pack(ctx.id, pid, RETURNED))


@task(takes_context=True)
def immediate(ctx: JobContext, seconds: float = 0) -> None:
    """Record the run; the thread waits for the commit of its ack."""
    with recorded(ctx, seconds):
        pass


@task(takes_context=True, settle="batched")
def batched(ctx: JobContext, seconds: float = 0) -> None:
    """Record the run; the thread goes on at once."""
    with recorded(ctx, seconds):
        pass


@task(takes_context=True, atomic=True)
def atomic(ctx: JobContext, seconds: float = 0) -> None:
    """Record the run, and insert a row in the transaction of the ack."""
    with recorded(ctx, seconds), connection.cursor() as cursor:
        cursor.execute(EFFECT, [ctx.id])
