"""
Overlaps: two subscriptions of one queue that a message could both match.

It would make two jobs there, and the queue would get it twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations

from django_pgqueue.topics.subscribe import Declaration, declared


def overlaps() -> Iterator[tuple[Declaration, Declaration]]:
    """
    Yield the pairs that code declares.

    By their patterns, whatever names messages have; two that want payloads with
    different contents are taken to part the messages between them.
    """
    for one, other in combinations(declared(), 2):
        if (
            one.queue == other.queue
            and one.pattern.overlaps(other.pattern)
            and _want_the_same(one, other)
        ):
            yield one, other


def _want_the_same(one: Declaration, other: Declaration) -> bool:
    if one.where is None or other.where is None:
        return True
    return bool(json.loads(one.where) == json.loads(other.where))
