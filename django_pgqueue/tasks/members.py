"""Members: those of a group or a batch, with what each came to, as they end."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from django_pgqueue.exceptions import (
    JobFailed,
    UndecodablePayload,
    WorkflowNotFound,
)
from django_pgqueue.options.durations import Duration
from django_pgqueue.queues import workflows
from django_pgqueue.tasks import database
from django_pgqueue.tasks.payload import decode_value
from django_pgqueue.tasks.pending import Pending
from django_pgqueue.tasks.raised import Reject
from django_pgqueue.tasks.result import refuse_vain_wait

# Whose results are read at a time: they may be large.
RESULTS_READ = 1_000


@dataclass(frozen=True, slots=True)
class Member:
    """
    A member of a group or a batch that has ended.

    Attributes:
        index: Its place, from 0 on: that of its result in the list of get().
        id: Of its job.
        name: Of its task.
        status: "succeeded", "dead", "cancelled", "expired" or "skipped"; "waiting": it
            will not run, since the workflow has ended without it.
    """

    index: int
    id: int
    name: str
    status: str
    _result: str | None = field(repr=False)
    _error: str | None = field(repr=False)

    def get(self) -> Any:
        """
        Return its result; asks nobody. None, if it was skipped.

        Raises:
            JobFailed: It has not succeeded.
            UndecodablePayload: Its result cannot be read.
        """
        if self.status not in ("succeeded", "skipped"):
            error = json.loads(self._error) if self._error else {}
            why = ": ".join(
                str(error[each]) for each in ("type", "message") if error.get(each)
            )
            raise JobFailed(self.id, self.status, error.get("reason"), why)
        try:
            return None if self._result is None else decode_value(self._result)
        except Reject as gone:
            raise UndecodablePayload(
                f"The result of job {self.id} cannot be read: {gone}"
            ) from None


class PendingMembers(Pending[Member]):
    """
    The members that a group or a batch has when this is first asked for one.

    Args:
        workflow: Its id.
        timeout: As of as_completed().

    Raises:
        ValueError: The timeout is no duration.
    """

    def __init__(self, workflow: int, timeout: Duration | None) -> None:
        super().__init__({}, timeout)
        self._workflow = workflow
        self._status = ""
        self._is_read = False

    def _find_all(self) -> list[Member]:
        """Read which there are, the first time; raise WorkflowNotFound for no row."""
        with database.cursor() as cursor:
            if not self._is_read:
                found = workflows.members(cursor, self._workflow)
                self._pending = {job: place for place, job in enumerate(found)}
                self._count, self._is_read = len(found), True
            # Before it is looked at them: whatever had ended by then is found.
            row = workflows.find(cursor, [self._workflow]).get(self._workflow)
        if row is None:
            raise WorkflowNotFound(self._workflow)
        self._status = row.state
        return self._read(self._pending, every=row.finished_at is not None)

    def _find(self, some: Collection[int]) -> list[Member]:
        return self._read(some, every=False)

    def _read(self, some: Collection[int], *, every: bool) -> list[Member]:
        """Return those that have ended, in that order; *every*: all of them."""
        found: list[Member] = []
        with database.cursor() as cursor:
            ids = workflows.ended(cursor, list(some), every=every)
            for start in range(0, len(ids), RESULTS_READ):
                chunk = ids[start : start + RESULTS_READ]
                rows = workflows.outcomes(cursor, chunk)
                found += [
                    Member(self._pending.pop(job), job, *rows[job])
                    for job in chunk
                    if job in rows
                ]
        if every:
            self._pending.clear()
        return found

    def _ids(self, ended: Iterable[Member]) -> list[int]:
        return [member.id for member in ended]

    def _refuse_in_vain(self) -> None:
        refuse_vain_wait(
            self._workflow, self._status, is_endless=self._is_endless, what="Workflow"
        )
