"""Sample tasks for a pool of processes: they compute, leak, hang and die."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from django_pgqueue import Retry, task
from django_pgqueue.signals import job_dead, job_started
from django_pgqueue.tasks.context import JobContext
from tests.harness import ledger

ONCE = Retry(max_attempts=1)
MEBIBYTE = 1_048_576

_kept: list[bytearray] = []


@task(takes_context=True)
def leaks(ctx: JobContext, mebibytes: int) -> None:
    """Keep so much memory for as long as the process lives."""
    ledger.write("start", ctx.id, ctx.attempt)
    # Not zeros: pages that nobody wrote to take no memory.
    _kept.append(bytearray(b"x" * (mebibytes * MEBIBYTE)))


@task(takes_context=True, timeout=0.3, retries=ONCE)
def stubborn(ctx: JobContext) -> None:
    """Run on, whatever is raised in here."""
    ledger.write("start", ctx.id, ctx.attempt)
    while True:
        try:
            time.sleep(0.05)
        except BaseException as error:
            ledger.write("deaf", ctx.id, note=type(error).__name__)


@task(takes_context=True, timeout=0.3, retries=ONCE)
def sleeps(ctx: JobContext) -> None:
    """Sleep longer than anybody waits."""
    ledger.write("start", ctx.id, ctx.attempt)
    time.sleep(600)


@task(takes_context=True, ack_policy="manual")
def acks_and_dies(ctx: JobContext) -> None:
    """Be acked, and end the process."""
    ledger.write("start", ctx.id, ctx.attempt)
    ctx.ack()
    os._exit(3)


@task(takes_context=True)
def kills_its_parent(ctx: JobContext) -> None:
    """End the process that has forked this one, the first time."""
    ledger.write("start", ctx.id, ctx.attempt)
    path = Path(os.environ[ledger.PATH])
    if not ledger.Ledger(path).entries("parent killed"):
        ledger.write("parent killed", ctx.id)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)


@task(takes_context=True)
def computes(ctx: JobContext, seconds: float) -> None:
    """Take so much processor time, all of it in Python code."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1_000))


def _note_start(job: object, **fields: object) -> None:
    ledger.write("signal started", getattr(job, "id", 0))


def _note_death(job: object, error: BaseException, **fields: object) -> None:
    note = [type(error).__module__, type(error).__qualname__, str(error)]
    ledger.write("signal dead", getattr(job, "id", 0), note=note)


@task(takes_context=True, retries=ONCE)
def fails_with_its_own(ctx: JobContext) -> None:
    """Raise an exception that cannot be pickled."""
    ledger.write("start", ctx.id, ctx.attempt)

    class Unpicklable(Exception):
        def __init__(self, left: int, right: int) -> None:
            super().__init__(f"{left} is not {right}")
            self.file = open(os.devnull)  # noqa: SIM115, PTH123

    raise Unpicklable(1, 2)


if ledger.PATH in os.environ:
    # In a worker; a receiver in the suite's own process would write for every test.
    job_started.connect(_note_start, sender=fails_with_its_own)
    job_dead.connect(_note_death, sender=fails_with_its_own)
