"""Sample tasks in the words of django.tasks, as a project would write them."""

from __future__ import annotations

from typing import Any

import django

from tests.app.models import Order
from tests.app.tasks import Unlucky

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task


@task
def multiply(left: int, right: int) -> int:
    """Return a result."""
    return left * right


@task(priority=7, queue_name="standard")
def note(name: str) -> None:
    """Write a row, so that another process can see that it ran."""
    Order.objects.create(name=name)


@task
def raises(message: str = "bad luck") -> None:
    """Fail on every attempt."""
    raise Unlucky(message)


@task
async def add_later(left: int, right: int) -> int:
    """Return a result from a coroutine."""
    return left + right


@task(takes_context=True)
def tell_attempt(context: Any, name: str) -> list[Any]:
    """Return what the context says."""
    return [context.attempt, context.task_result.id, context.job.idempotency_key, name]


@task(backend="immediate")
def elsewhere(name: str) -> None:
    """Declared for another backend; given ours by using()."""
    Order.objects.create(name=name)
