"""The task that does nothing, with both settle strengths."""

from __future__ import annotations

from django_pgqueue import task
from tests.benchmarks.agent.tally import note as tally


@task(name="benchmarks.immediate")
def immediate(order_id: int, note: str) -> None:
    """Do nothing; the thread waits for its ack."""
    tally(order_id)


@task(name="benchmarks.batched", settle="batched")
def batched(order_id: int, note: str) -> None:
    """Do nothing; the thread goes on while the ack is written."""
    tally(order_id)
