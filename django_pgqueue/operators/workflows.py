"""Workflows as people read and choose them: how far one is, and what filters mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.live_states import LIVE_WORKFLOWS, UNNEEDED
from django_pgqueue.models.workflow import StepState, Workflow
from django_pgqueue.operators.filters import (
    Meaning,
    equal,
    id_or,
    is_number,
    part_of,
)
from django_pgqueue.redaction.text import redact_text
from django_pgqueue.tasks import database

ID_MAX = 2**63 - 1

WORKFLOWS: Mapping[str, Meaning] = {
    "name": part_of("name"),
    "state": equal("state"),
}

STEPS: Mapping[str, Meaning] = {
    "q": id_or(part_of("name")),
    "state": equal("state"),
}

# Steps that start when the others have ended, and when each of these does.
CALLBACKS = {
    "on_success": "if it succeeds",
    "on_error": "if it fails",
    "on_complete": "in the end",
}
KINDS = {**CALLBACKS, "compensation": "undo"}

# How people read UNNEEDED.
NOT_NEEDED = "not needed"

# What the list of either reads: not what a job will be, and not what a step returned.
WORKFLOW_COLUMNS = (
    *("name", "key", "kind", "state", "steps", "active", "succeeded", "skipped"),
    *("dead", "cancelled", "is_open", "created_at", "finished_at"),
    *("cancel_requested_at", "deadline_at", "is_overdue", "restarted_from"),
    *("version", "parent_id"),
)
STEP_COLUMNS = ("name", "kind", "task", "state", "started_at", "finished_at")


def of_id(text: str) -> list[int]:
    """Return *text* as the only id that it can be, if it is written as ids are."""
    return [int(text)] if is_number(text) and int(text) <= ID_MAX else []


def of_id_or_key(text: str) -> list[int]:
    """Return the ids of the workflows that have *text* for their id, or their key."""
    return [*of_id(text), *of_key(text)]


def of_key(key: str) -> list[int]:
    """Return the ids of the workflows that have this *key*, by any name."""
    from django_pgqueue.queues import workflows

    with database.cursor() as cursor:
        return workflows.of_key(cursor, key)


def batches_of(workflow: int, limit: int) -> list[int]:
    """Return the ids of the batches right in one, the first *limit* of them."""
    rows = Workflow.objects.using(get_settings().database)
    # A range of one, as Keyset.within says.
    inner = rows.filter(parent_id__range=(workflow, workflow))
    return list(inner.order_by("parent_id", "pk").values_list("pk", flat=True)[:limit])


def is_live(row: Any) -> bool:
    """Return whether a workflow goes on: its steps run, or are undone."""
    return row.state in LIVE_WORKFLOWS


def is_of_other_steps(row: Any) -> bool:
    """Return whether a saga goes on that began with other steps than are declared."""
    if row.version is None or not is_live(row):
        return False
    from django_pgqueue.workflows.versions import is_other

    return is_other(row.name, row.version)


def ended(row: Any) -> int:
    """Return how many of a workflow's steps have ended, in whatever way."""
    return int(row.succeeded + row.skipped + row.dead + row.cancelled)


def progress(row: Any) -> str:
    """Return how far a workflow is: "990 of 1,000"."""
    return f"{ended(row):,} of {row.steps:,}"


def label_of(state: str) -> str:
    """Return the word for a step's *state*."""
    if state == UNNEEDED:
        return NOT_NEEDED
    return str(StepState(state).label) if state in StepState.values else state


@dataclass(frozen=True, slots=True)
class StepError:
    """What a dead step died of; "" where it does not say so."""

    reason: str
    type: str
    message: str  # Redacted.


def error_of(text: str | None) -> StepError | None:
    """Return the error of a step, which its column has as JSON *text*; None: none."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return StepError("", "", "")
    reason, kind, message = (
        found if isinstance(found := value.get(name), str) else ""
        for name in ("reason", "type", "message")
    )
    return StepError(reason, kind, redact_text(message, get_settings().redact))
