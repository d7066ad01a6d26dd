"""Rows: jobs wherever they are, as they were when they were enqueued."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from django_pgqueue.models import ArchivedJob, DeadLetter, Job

MODELS: tuple[type[Model], ...] = (Job, ArchivedJob, DeadLetter)

# What changes when a job runs.
UNTRIED: dict[str, Any] = {"attempt": 0, "deliveries": 0, "crashes": 0, "errors": []}

SHARED = sorted(
    {field.attname for field in Job._meta.concrete_fields}
    & {field.attname for field in ArchivedJob._meta.concrete_fields}
)


def as_enqueued(row: Model) -> Job:
    """Return what the job of *row* was when it was enqueued, wherever it is now."""
    job = Job(**{**{name: getattr(row, name) for name in SHARED}, **UNTRIED})
    job.visible_at = job.run_after or job.enqueued_at
    job._state.adding = False
    job._state.db = row._state.db
    return job


def latest_id(alias: str) -> int:
    """Return the highest id of any job; 0 when there is none."""
    newest = [
        model._base_manager.using(alias).order_by("-pk").values_list("pk")[:1]
        for model in MODELS
    ]
    return max((pk for (pk,) in newest[0].union(*newest[1:])), default=0)
