"""
Model references: arguments that stand for a row, by its model and primary key.

The task gets that row. So who edits arguments may only refer to rows that they could
look at themselves; a reference that was there before may stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.contrib.auth import get_permission_codename
from django.http import HttpRequest

from django_pgqueue.tasks.payload import TAG


def refused_model(request: HttpRequest, given: Any, stored: str) -> str | None:
    """
    Return the model that *given* refers to anew and the user may not view, or None.

    Args:
        request: Of the user.
        given: Arguments as JSON has them.
        stored: The text of those that are replaced.
    """
    before = {_key(found) for found in _references(_read(stored))}
    for found in _references(given):
        if _key(found) not in before and not _may_view(request, found.get("value")):
            return str(found.get("value"))
    return None


def _may_view(request: HttpRequest, label: Any) -> bool:
    try:
        options = apps.get_model(label)._meta
    except (AttributeError, LookupError, TypeError, ValueError):
        return True  # There is no such model, and so no row; the edit says so.
    codename = get_permission_codename("view", options)
    return request.user.has_perm(f"{options.app_label}.{codename}")


def _references(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the references in JSON, however deep; within messages too."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            if item.get(TAG) == "model":
                yield item
            left += item.values()
        elif isinstance(item, list):
            left += item


def _key(reference: dict[str, Any]) -> str:
    return json.dumps(reference, sort_keys=True)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
