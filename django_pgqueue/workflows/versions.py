"""
Versions: which sagas under way began with other steps than are declared now.

A run keeps the steps that it was stored with. Its row says by which declaration, so
that a deploy which changes a saga can say how many runs of an older one are under way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any
from weakref import WeakSet

from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import workflows

_declared: WeakSet[Any] = WeakSet()


def declare(saga: Any) -> None:
    """Make a saga, with its name and version, known for as long as it lives."""
    _declared.add(saga)


def declared() -> Mapping[str, Collection[str]]:
    """Return the versions of all sagas that are declared here, by name."""
    found: dict[str, set[str]] = {}
    for saga in list(_declared):
        found.setdefault(saga.name, set()).add(saga.version)
    return found


def version_of(shape: object) -> str:
    """Return twelve hexadecimal digits that stand for *shape*, a value of JSON."""
    text = json.dumps(shape, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def is_other(name: str, version: str) -> bool:
    """Return whether a saga began with other steps than are declared here."""
    return all(version != saga.version for saga in list(_declared) if saga.name == name)


def others_under_way(cursor: Cursor) -> dict[str, int]:
    """
    Return how many sagas have not ended that began with other steps, by name.

    Up to 10,000 of each version are counted.
    """
    here = declared()
    found: dict[str, int] = {}
    for each in workflows.under_way(cursor):
        if each.version not in here.get(each.name, ()):
            found[each.name] = found.get(each.name, 0) + each.runs
    return found
