"""Typed items: those of bulk(), of which each is what the task's hints say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django_pgqueue.conf import Settings
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.tasks import keys
from django_pgqueue.tasks.declared import DeclaredTask
from django_pgqueue.tasks.spread import Item


def encode_items(
    task: DeclaredTask,
    settings: Settings,
    encode: Callable[[int, Sequence[Item], int], list[Items]],
    start: int,
    items: Sequence[Item],
    payload_bytes_max: int,
) -> list[Items]:
    """Return the arguments of items of bulk(), by *encode*; their types are right."""
    encoded = encode(start, items, payload_bytes_max)
    keys.of_items(
        task,
        items,
        start,
        lambda args, kwargs: task.check_types(args, kwargs, settings),
    )
    return encoded
