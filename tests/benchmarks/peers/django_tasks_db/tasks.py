"""The task that does nothing."""

from __future__ import annotations

import django

from tests.benchmarks.agent.tally import note as tally

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task


@task
def nothing(order_id: int, note: str) -> None:
    """Do nothing."""
    tally(order_id)
