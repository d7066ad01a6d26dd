"""Result: what became of a job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import JobNotFound
from django_pgqueue.queues.find import Found, find
from django_pgqueue.tasks.payload import decode_value

if TYPE_CHECKING:
    from django.db.models import Model

R = TypeVar("R", covariant=True)


class JobResult(Generic[R]):
    """
    A handle on one job.

    Everything but ``id`` is read from the database once, when first asked for, and
    again by refresh().
    """

    __slots__ = ("_found", "id")

    def __init__(self, job_id: int) -> None:
        self.id = job_id
        self._found: Found | None = None

    def refresh(self) -> JobResult[R]:
        """
        Read the job's state again: one query over queue, archive and dead letters.

        Raises:
            JobNotFound: It was never committed, or its retention has passed.
        """
        from django.db import connections

        with connections[get_settings().database].cursor() as cursor:
            found = find(cursor, [self.id])
        if self.id not in found:
            raise JobNotFound(self.id)
        self._found = found[self.id]
        return self

    @property
    def status(self) -> str:
        """
        One of scheduled, ready, running, retrying, parked (live), succeeded,
        cancelled, expired (archive), dead (dead letters).
        """
        return self._read().status

    @property
    def attempt(self) -> int:
        """The latest attempt; 0 before the first."""
        return self._read().attempt

    @property
    def result(self) -> R | None:
        """What the task returned; None until it succeeded or when not stored."""
        text = self._read().result
        value: R | None = None if text is None else decode_value(text)
        return value

    @property
    def reason(self) -> str | None:
        """Why it is a dead letter; None when it is none."""
        return self._read().reason

    @property
    def errors(self) -> list[dict[str, Any]]:
        """One entry per failed attempt or crash, the oldest first."""
        errors: list[dict[str, Any]] = json.loads(self._read().errors)
        return errors

    @property
    def job(self) -> Model | None:
        """The row: a Job, an ArchivedJob, a DeadLetter, or None."""
        from django_pgqueue.models import JobReference

        return JobReference(self.id).job

    def _read(self) -> Found:
        if self._found is None:
            self.refresh()
        assert self._found is not None
        return self._found

    def __repr__(self) -> str:
        return f"<JobResult {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobResult) and self.id == other.id

    def __hash__(self) -> int:
        return hash((JobResult, self.id))
