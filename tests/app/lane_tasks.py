"""Sample tasks whose jobs wait for one another."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from django_pgqueue import Breaker, Limit, Rate, Retry, task
from django_pgqueue.tasks.context import JobContext
from tests.harness import ledger
from tests.harness.ledger import Ledger
from tests.harness.waiting import wait_for

GATE_SECONDS_MAX = 60.0
SOON = Retry(max_attempts=20, backoff="constant", base=0.05, jitter="full")


def _run(ctx: JobContext, key: str, number: int, fails: float = 0.0) -> None:
    """Write when it starts and ends, and fail in so many of all cases."""
    ledger.write("start", ctx.id, ctx.attempt, [key, number])
    time.sleep(random.uniform(0, 0.002))  # So that runs of one key would overlap.
    is_bad = random.random() < fails
    ledger.write("failed" if is_bad else "end", ctx.id, ctx.attempt, [key, number])
    if is_bad:
        raise RuntimeError("bad luck")


@task(group="customer", takes_context=True)
def step(ctx: JobContext, customer: str, number: int) -> None:
    """One at a time for a customer."""
    _run(ctx, customer, number)


@task(group="customer", takes_context=True, retries=SOON)
def flaky_step(ctx: JobContext, customer: str, number: int) -> None:
    """One at a time for a customer, and one of ten attempts fails."""
    _run(ctx, customer, number, 0.1)


@task(limit=Limit(3, key="tenant"), takes_context=True)
def limited(ctx: JobContext, tenant: str, number: int) -> None:
    """Three at a time for a tenant."""
    _run(ctx, tenant, number)


@task(group=True, takes_context=True)
def alone(ctx: JobContext, number: int = 0) -> None:
    """One at a time, of all."""
    _run(ctx, "", number)


@task(group="customer", takes_context=True, retries=0)
def fails_once(ctx: JobContext, customer: str, number: int) -> None:
    """One at a time for a customer; the first run of number 1 fails."""
    ledger.write("start", ctx.id, ctx.attempt, [customer, number])
    starts = Ledger(Path(os.environ[ledger.PATH])).starts()
    if number == 1 and starts[ctx.id] == 1:
        raise RuntimeError("bad luck")


@task(rate=Rate("40/s", burst=4, key="account"), takes_context=True, retries=SOON)
def paced(ctx: JobContext, account: str, number: int) -> None:
    """Forty a second for an account, and four ahead of that; one of ten fails."""
    _run(ctx, account, number, 0.1)


@task(queue="provider", takes_context=True, retries=SOON)
def call_provider(ctx: JobContext, tenant: str, number: int) -> None:
    """Of a queue that tests give a limit; one of ten fails."""
    _run(ctx, tenant, number, 0.1)


@task(queue="provider", limit=Limit(2, key="tenant"), takes_context=True)
def call_for_tenant(ctx: JobContext, tenant: str, number: int) -> None:
    """Two at a time for a tenant, in that queue."""
    _run(ctx, tenant, number)


@task(
    breaker=Breaker(0.5, of=5, within="1m", cooldown="1s"),
    takes_context=True,
    retries=Retry(max_attempts=50, backoff="constant", base=0.05, jitter="none"),
)
def calls_provider(ctx: JobContext, provider: str) -> None:
    """Fail while there is no such file; while it says "slow", wait."""
    ledger.write("start", ctx.id, ctx.attempt)
    path = Path(provider)
    if not path.exists():
        raise ConnectionError("refused, password=hunter2")
    wait_for(lambda: path.read_text() != "slow", GATE_SECONDS_MAX, "the provider")
    ledger.write("end", ctx.id, ctx.attempt)
