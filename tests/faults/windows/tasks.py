"""Tasks of every settle strength: they note that they ran, and take so long."""

from __future__ import annotations

import time

from django.db import connection

from django_pgqueue import task
from django_pgqueue.tasks.context import JobContext
from tests.faults.windows.book import RETURNED, STARTED, write

EFFECT = "INSERT INTO faults_effect (job, delivery, key) VALUES (%s, 0, '')"


def _work(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


@task(takes_context=True)
def immediate(ctx: JobContext, seconds: float = 0) -> None:
    """Note that it ran; its thread waits for the commit of its ack."""
    write(ctx.id, STARTED)
    _work(seconds)
    write(ctx.id, RETURNED)


@task(takes_context=True, settle="batched")
def batched(ctx: JobContext, seconds: float = 0) -> None:
    """Note that it ran; its thread goes on at once."""
    write(ctx.id, STARTED)
    _work(seconds)
    write(ctx.id, RETURNED)


@task(takes_context=True, atomic=True)
def atomic(ctx: JobContext, seconds: float = 0) -> None:
    """Note that it ran, and write a row in the transaction of its ack."""
    write(ctx.id, STARTED)
    with connection.cursor() as cursor:
        cursor.execute(EFFECT, [ctx.id])
    _work(seconds)
    write(ctx.id, RETURNED)
