"""Context: the job as its task sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """
    Passed as the first argument to a task declared with takes_context=True.

    Called inline, without a job, a task gets a context with id 0 and attempt 1.
    """

    id: int  # The same through every retry and redrive.
    task: str
    queue: str
    attempt: int  # 1 for the first.
    max_attempts: int
    headers: Mapping[str, Any] = field(default_factory=dict)
    # Names the job to other systems, so that they can recognise a repeat:
    # "<installation>-<id>", the same through every retry and redrive.
    idempotency_key: str

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure of this attempt makes the job a dead letter."""
        return self.attempt >= self.max_attempts


def inline_context(task: str) -> JobContext:
    """Return the context of a call without a job."""
    return JobContext(
        id=0,
        task=task,
        queue="",
        attempt=1,
        max_attempts=1,
        idempotency_key=f"inline-{uuid4()}",
    )
