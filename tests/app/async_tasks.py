"""Sample async tasks, for the event loop of a worker."""

from __future__ import annotations

import asyncio
import os
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from django_pgqueue import task
from django_pgqueue.tasks.context import JobContext
from tests.app.models import Order
from tests.harness import ledger

GATE_SECONDS_MAX = 60.0


colour: ContextVar[str] = ContextVar("colour", default="none")


async def _pass(gate: str) -> None:
    """Wait until the test opens the gate."""
    until = time.monotonic() + GATE_SECONDS_MAX
    while not await asyncio.to_thread(Path(gate).exists):
        assert time.monotonic() < until, "the gate stays shut"
        await asyncio.sleep(0.02)


@task(takes_context=True, queue="async")
async def arecord(ctx: JobContext, note: Any = None) -> Any:
    """Write a start and an end."""
    ledger.write("start", ctx.id, ctx.attempt, note)
    await asyncio.sleep(0)
    ledger.write("end", ctx.id, ctx.attempt, note)
    return note


@task(takes_context=True, queue="async")
async def agated(ctx: JobContext, gate: str) -> None:
    """Write a start, wait until the test makes the file *gate*, write an end."""
    ledger.write("start", ctx.id, ctx.attempt)
    await _pass(gate)
    ledger.write("end", ctx.id, ctx.attempt)


@task(takes_context=True, queue="async", retries=0)
async def araises(ctx: JobContext, name: str, where: str = "here") -> None:
    """Raise a BaseException: here, in an asyncio task, or in a callback."""
    ledger.write("start", ctx.id, ctx.attempt)
    error = {"exit": SystemExit, "interrupt": KeyboardInterrupt}.get(name)
    error = error or asyncio.CancelledError

    def throw() -> None:
        raise error(name)

    async def throw_soon() -> None:
        throw()

    if where == "here":
        throw()
    if where == "task":
        await asyncio.create_task(throw_soon())
    asyncio.get_running_loop().call_soon(throw)
    await asyncio.sleep(0.05)


@task(takes_context=True, queue="async", timeout=0.3, retries=0)
async def atoo_slow(ctx: JobContext, swallows: bool = False) -> None:
    """Run longer than the timeout; note what is raised; maybe go on regardless."""
    ledger.write("start", ctx.id, ctx.attempt)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            ledger.write("raised", ctx.id, note=type(error).__name__)
            if not swallows:
                raise


@task(takes_context=True, queue="async", retries=0)
async def acleans_up(ctx: JobContext, gate: str, seconds: float = 0.0) -> None:
    """Wait for the gate; note what ends that, and tidy up for a while."""
    ledger.write("start", ctx.id, ctx.attempt)
    try:
        await _pass(gate)
    except asyncio.CancelledError:
        ledger.write("raised", ctx.id, note=ctx.cancelled)
        raise
    finally:
        await asyncio.sleep(seconds)
        ledger.write("cleaned", ctx.id)


@task(takes_context=True, queue="async")
async def awrites(ctx: JobContext, name: str, gate: str = "") -> int:
    """Write a row, wait for the gate, read it; note which connection that was."""
    order = await Order.objects.acreate(name=name)
    if gate:
        await _pass(gate)
    found = await Order.objects.aget(pk=order.pk)
    ledger.write("backend", ctx.id, note=await sync_to_async(_backend)())
    return int(found.pk)


def _backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@task(takes_context=True, queue="async", retries=0)
async def aleaves_transaction(ctx: JobContext, how: str) -> None:
    """Open a transaction in one sync call, and hope for it in the next."""

    def begin() -> None:
        if how == "autocommit":
            connection.set_autocommit(False)
        elif how == "atomic":
            transaction.atomic().__enter__()
        else:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
        Order.objects.create(name="never committed")

    ledger.write("start", ctx.id)
    await sync_to_async(begin)()
    ledger.write("went on", ctx.id)


@task(takes_context=True, queue="async")
async def aleaves_tasks(ctx: JobContext, stubborn: bool = False) -> str:
    """Start two asyncio tasks and await neither."""

    async def linger() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ledger.write("raised", ctx.id)
                if not stubborn:
                    raise

    loop = asyncio.get_running_loop()
    running = [loop.create_task(linger()) for _ in range(2)]
    await asyncio.sleep(0)
    return f"{len(running)} left"


@task(takes_context=True, queue="async")
async def acolours(ctx: JobContext, name: str) -> list[str]:
    """Set a context variable; return what it was before and in a sync call."""
    before = colour.get()
    colour.set(name)
    return [before, await sync_to_async(colour.get)()]


@task(takes_context=True, queue="async")
async def apoison(ctx: JobContext, gate: str) -> None:
    """End the process under the task, once the gate is open."""
    ledger.write("start", ctx.id, ctx.attempt)
    await _pass(gate)
    os._exit(7)
