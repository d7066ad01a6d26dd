"""Sync: the topics that code declares become rows."""

from __future__ import annotations

from django_pgqueue.log.declare import declare
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.topics.registry import declared


def sync(cursor: Cursor) -> list[str]:
    """
    Write what code declares of topics; return the names of those with something new.

    In the order of their names, so that two workers that start at once do not
    deadlock. The caller has a transaction open.
    """
    return [
        each.name
        for each in declared()
        if declare(
            cursor,
            each.name,
            partitions=each.partitions,
            retain=each.retain,
            schema=each.schema_name,
        )
    ]
