"""
Workload: the tasks of the runs. What they do is seen in the ledger and in rows.

Each notes its start, works for a few milliseconds, writes a row and notes its end; or
notes that it failed, and how.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from django_pgqueue import Group, Limit, Rate, Reject, Retry, task
from django_pgqueue.tasks.context import JobContext
from tests.faults import leaks, ledger, poison
from tests.faults.capacities import BURST, LIMIT, PER_SECOND, QUEUE
from tests.faults.instrument import delivery_of, pass_point

SOON = Retry(max_attempts=5, backoff="constant", base=0.3, jitter="full")
TWICE = Retry(max_attempts=2, backoff="constant", base=0.1, jitter="none")

EFFECT = "INSERT INTO faults_effect (job, delivery, key) VALUES (%s, %s, %s)"


class Planned(Exception):
    """What a job raises whose plan says so."""


@contextmanager
def noted(ctx: JobContext) -> Iterator[int]:
    """Note start, and end or failure, of this delivery; give its number."""
    delivery = delivery_of(ctx.id)
    job: dict[str, Any] = {"job": ctx.id, "delivery": delivery, "attempt": ctx.attempt}
    ledger.write("tasks", "start", **job)
    try:
        yield delivery
    except BaseException as error:
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        ledger.write("tasks", "fail", **job, error=kind, text=str(error)[:200])
        raise
    ledger.write("tasks", "end", **job)


def write_effect(ctx: JobContext, delivery: int, key: str) -> None:
    """Write the row that shows that this delivery has run."""
    with connection.cursor() as cursor:
        cursor.execute(EFFECT, [ctx.id, delivery, key])


def act(ctx: JobContext, key: str, seconds: float, fails: int) -> None:
    """Take *seconds*, and write a row halfway; then fail, if that is planned."""
    with noted(ctx) as delivery:
        pass_point("running")
        time.sleep(seconds / 2)
        write_effect(ctx, delivery, key)
        time.sleep(seconds / 2)
        if ctx.attempt <= fails:
            raise Planned(f"attempt {ctx.attempt}")
        if fails < 0:
            raise Reject("as planned")


@task(takes_context=True, retries=SOON)
def work(ctx: JobContext, key: str, seconds: float, fails: int = 0) -> None:
    """Take *seconds*, write a row; raise on the first *fails* attempts; -1: reject."""
    act(ctx, key, seconds, fails)


@task(takes_context=True, retries=SOON, atomic=True)
def atomic_work(ctx: JobContext, key: str, seconds: float, fails: int = 0) -> None:
    """As ``work``, in one transaction with the ack."""
    act(ctx, key, seconds, fails)


@task(takes_context=True, retries=SOON, group="customer")
def grouped(
    ctx: JobContext, key: str, customer: str, seconds: float, fails: int = 0
) -> None:
    """As ``work``, one at a time for a customer, and in order."""
    act(ctx, key, seconds, fails)


@task(takes_context=True, retries=SOON, group=Group("customer", on_error="skip"))
def yielding(
    ctx: JobContext, key: str, customer: str, seconds: float, fails: int = 0
) -> None:
    """As ``grouped``, and the others go on while one waits for its next attempt."""
    act(ctx, key, seconds, fails)


@task(takes_context=True, retries=SOON, limit=Limit(LIMIT, key="customer"))
def limited(
    ctx: JobContext, key: str, customer: str, seconds: float, fails: int = 0
) -> None:
    """As ``work``, so many at a time for a customer."""
    act(ctx, key, seconds, fails)


@task(
    takes_context=True,
    retries=SOON,
    rate=Rate(f"{PER_SECOND}/s", burst=BURST, key="customer"),
)
def paced(
    ctx: JobContext, key: str, customer: str, seconds: float, fails: int = 0
) -> None:
    """As ``work``, so many in a time for a customer."""
    act(ctx, key, seconds, fails)


@task(takes_context=True, retries=SOON, queue=QUEUE)
def metered(ctx: JobContext, key: str, seconds: float, fails: int = 0) -> None:
    """As ``work``, in a queue that has a limit and a rate."""
    act(ctx, key, seconds, fails)


@task(takes_context=True, retries=SOON, fair_by="customer")
def shared(
    ctx: JobContext, key: str, customer: str, seconds: float, fails: int = 0
) -> None:
    """As ``work``, each customer in turn."""
    act(ctx, key, seconds, fails)


@task(takes_context=True, retries=SOON)
def idle_in_transaction(
    ctx: JobContext, key: str, seconds: float, fails: int = 0
) -> None:
    """On its first attempt, leave a transaction idle for longer than is allowed."""
    with noted(ctx) as delivery, transaction.atomic():
        write_effect(ctx, delivery, key)
        time.sleep(1.3 if ctx.attempt == 1 else seconds)
        write_effect(ctx, delivery, key)


@task(takes_context=True, retries=SOON)
def probe(ctx: JobContext, key: str, seconds: float, fails: int = 0) -> None:
    """As ``work``, and first note what an earlier job has left in this process."""
    with noted(ctx) as delivery:
        for leak in leaks.found(connection):
            ledger.write("tasks", "leak", job=ctx.id, delivery=delivery, what=leak)
        time.sleep(seconds)
        write_effect(ctx, delivery, key)


@task(takes_context=True, retries=TWICE)
def poisonous(ctx: JobContext, key: str, how: str) -> None:
    """Do one of the things that a job had better not do."""
    with noted(ctx) as delivery:
        # What dies of it, beside this job too, is thereby explained.
        ledger.write("faults", "fault", kind="poison", what=how, pids=[os.getpid()])
        poison.KINDS[how]()
        write_effect(ctx, delivery, key)


@task(takes_context=True, retries=TWICE)
def litter(ctx: JobContext, key: str, how: str) -> None:
    """Leave something in the connection."""
    with noted(ctx) as delivery:
        write_effect(ctx, delivery, key)
        leaks.leave(how, connection)


@task(takes_context=True, retries=SOON)
def hog(ctx: JobContext, key: str, how: str) -> None:
    """Hold the interpreter for *how* seconds, in a C function that lets nobody in."""
    with noted(ctx) as delivery:
        ledger.write(
            "faults", "fault", kind="hog", seconds=float(how), pids=[os.getpid()]
        )
        poison.hold_interpreter(seconds=float(how))
        write_effect(ctx, delivery, key)
