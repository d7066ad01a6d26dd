"""Drift: what was changed here of a schedule that code declares."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from django.db.models import Field

from django_pgqueue.admin.redaction import redact_json
from django_pgqueue.models import Schedule
from django_pgqueue.schedules.store import COLUMNS, is_same

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Difference:
    """A column that was changed here."""

    label: str
    declared: str
    here: str
    is_hidden: bool


def drift(row: Any, *, may_see: bool) -> list[Difference]:
    """
    Return what differs from what code declares.

    Args:
        row: Of the page of a schedule, with declared_text, and args_raw, kwargs_raw
            and message_payload_raw.
        may_see: Whether arguments may be shown.
    """
    if row.declared_text is None or row.overridden_at is None:
        return []
    try:
        said = json.loads(row.declared_text)
        here = {
            "args": json.loads(row.args_raw),
            "kwargs": json.loads(row.kwargs_raw),
            "message_payload": json.loads(row.message_payload_raw or "null"),
            "message_key": row.message_key,
        }
    except (ValueError, RecursionError):
        return []
    found = []
    for column in COLUMNS:
        holds = here[column] if column in here else getattr(row, column)
        if is_same(said.get(column), holds):
            continue
        is_hidden = column in here and not may_see
        task = (said.get("task"), row.task) if column == "args" else (None, None)
        found.append(
            Difference(
                label=_label(column),
                declared="" if is_hidden else _value(said.get(column), task[0]),
                here="" if is_hidden else _value(holds, task[1]),
                is_hidden=is_hidden,
            )
        )
    return found


def _value(value: Any, task: str | None) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, (list, dict)):
        return redact_json(json.dumps(value, ensure_ascii=False), task=task).text
    return str(value)


def _label(column: str) -> str:
    field = cast("Field[Any, Any]", Schedule._meta.get_field(column))
    return str(field.verbose_name)
