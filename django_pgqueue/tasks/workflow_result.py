"""Workflow result: what became of a workflow, and what can still be done to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from django_pgqueue.exceptions import (
    JobFailed,
    ResultTimeout,
    WorkflowFailed,
    WorkflowNotFound,
    WrongState,
)
from django_pgqueue.options.durations import Duration
from django_pgqueue.queues import workflows
from django_pgqueue.queues.workflows import Row, StepRow
from django_pgqueue.tasks import database
from django_pgqueue.tasks.database import in_thread, twin
from django_pgqueue.tasks.payload import decode_result
from django_pgqueue.tasks.pending import Pending
from django_pgqueue.tasks.result import refuse_vain_wait, words_of
from django_pgqueue.tasks.waiting import await_until, wait_until

# Of how many steps a wait is told that they have ended; others are found by looking.
STEPS_AWAITED = 100

# In how many batches within a batch these are looked for, the latest first.
BATCHES_AWAITED = 10

# Steps read at a time.
STEPS_READ = 1_000


@dataclass(slots=True, eq=False)
class WorkflowResult:
    """
    A handle on one workflow.

    What is read is read once, when first asked for, and again by refresh() and get().
    Each method has a twin for async code, a… .

    Attributes:
        id: Of the workflow.
        created: Whether the call that returned this has stored it; False: there was
            one with its name and key.
    """

    id: int
    created: bool = True
    _row: Row | None = field(default=None, init=False, repr=False)

    def refresh(self) -> WorkflowResult:
        """
        Read the workflow's state again: one query.

        Raises:
            WorkflowNotFound: It was never committed, or its retention has passed.
        """
        with database.cursor() as cursor:
            found = workflows.find(cursor, [self.id])
        if self.id not in found:
            raise WorkflowNotFound(self.id)
        self._row = found[self.id]
        return self

    arefresh = twin(refresh)

    @property
    def name(self) -> str:
        """What people call it."""
        return self._read().name

    @property
    def status(self) -> str:
        """
        One of running, succeeded, failed and cancelled; of a saga one of running,
        succeeded, compensating and compensated.
        """
        return self._read().state

    @property
    def progress(self) -> float:
        """How many of its steps have ended, from 0 to 1; 1 where it has none."""
        row = self._read()
        ended = row.succeeded + row.skipped + row.dead + row.cancelled
        # A list of results that was too large is dead, and not among the steps.
        return min(ended / row.steps, 1.0) if row.steps else 1.0

    def steps(self) -> Iterator[StepRow]:
        """Yield its steps, in the order in which they were said."""
        after = 0
        while True:
            with database.cursor() as cursor:
                found = workflows.steps(cursor, self.id, after=after, limit=STEPS_READ)
            yield from found
            if len(found) < STEPS_READ:
                return
            after = found[-1].id

    def __iter__(self) -> Iterator[Member]:
        """Give the members of a group or a batch as they end; as as_completed()."""

        return PendingMembers(self.id, None).iterate()

    async def __aiter__(self) -> AsyncIterator[Member]:
        """Give the members as they end, in async code."""

        async for member in PendingMembers(self.id, None).iterate_async():
            yield member

    def get(self, timeout: Duration | None = None) -> Any:
        """
        Wait until the workflow has succeeded, and return its result.

        That of a chain is the result of its last part; that of a group the list of
        theirs.

        Args:
            timeout: How long to wait, a duration; 0: look once; None: without end.

        Raises:
            WorkflowFailed: It has failed, was cancelled, or is compensated.
            ResultTimeout: It has not ended within the timeout.
            WorkflowNotFound: It was never committed, or its retention has passed.
            UndecodablePayload: A result cannot be read.
            WrongState: It has not ended, and a transaction is open here: workers
                would not see its jobs before it commits.
            ValueError: The timeout is no duration.
        """
        wait_until(self._awaited(), timeout, lambda: self._has_ended(timeout))
        return self._outcome()

    async def aget(self, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109 - As get().
        """Wait for the result from async code, without blocking it; as get()."""
        awaited = await in_thread(self._awaited)
        await await_until(awaited, timeout, lambda: self._has_ended(timeout))
        return await in_thread(self._outcome)

    def cancel(self, *, compensate: bool = True, by: str = "") -> bool:
        """
        Cancel what has not started, and ask what runs to stop.

        The workflow is cancelled once no step of it runs; one that has a dead step by
        then has failed. Its on_error is not called.

        Args:
            compensate: Of a saga: whether it undoes what it has done. False: it is
                compensated at once, with nothing undone.
            by: Who cancels, for the errors of the jobs; at most 150 characters.

        Returns:
            False if it had ended already, or was asked before.

        Raises:
            InvalidOption: *by* is too long, or no text that can be stored.
            WorkflowNotFound: It was never committed, or its retention has passed.
        """
        from django_pgqueue.tasks import operate

        with database.transaction() as (_connection, cursor):
            started = workflows.cancel(cursor, self.id, compensate=compensate)
            if started:
                operate.cancel(started, by=by)
        self.refresh()
        return started is not None

    acancel = twin(cancel)

    def resolve(self, *, again: bool, by: str = "", reason: str = "") -> list[int]:
        """
        Let a saga go on that waits for a human: a compensation of it is dead.

        Args:
            again: Whether it is tried again, as by a redrive; False: it was done by
                hand, and the one before it starts, as when it is set aside.
            by: Who sets it aside, for its errors; at most 150 characters.
            reason: Why; at most 2,000 characters.

        Returns:
            The ids of the compensations that held it up.

        Raises:
            WorkflowNotFound: It was never committed, or its retention has passed.
        """
        from django_pgqueue.tasks import operate

        with database.transaction() as (_connection, cursor):
            stuck = workflows.stuck(cursor, self.id)
            if stuck and again:
                operate.retry(stuck)
            elif stuck:
                operate.set_aside(stuck, by=by, reason=reason)
            if stuck:
                workflows.resolve(cursor, self.id, again=again)
        self.refresh()
        return stuck

    aresolve = twin(resolve)

    def restart(self, step: int | None = None) -> WorkflowResult:
        """
        Start the workflow anew, with the results that it has.

        A new workflow, of new jobs, which takes over the key; this one stays as it is.

        Args:
            step: The id of a step that runs again, with all that comes after it. None:
                only what has not succeeded.

        Raises:
            WrongState: It has not ended, or is a saga or a batch.
            LookupError: It has no such step.
            WorkflowNotFound: It was never committed, or its retention has passed.
        """
        self.refresh()
        if step is not None and all(each.id != step for each in self.steps()):
            raise LookupError(f"Workflow {self.id} has no step {step}.")
        with database.cursor() as cursor:
            anew = workflows.restart(cursor, self.id, step)
        if anew is None:
            raise WrongState(
                self.id,
                self.status,
                "only a chain, a group, a chord or a flow that has ended can be "
                "restarted.",
                what="Workflow",
            )
        return WorkflowResult(anew)

    arestart = twin(restart)

    def _awaited(self) -> list[int]:
        """Return the jobs of which one is probably the last to end."""
        with database.cursor() as cursor:
            found: list[int] = []
            latest = workflows.batches_in(cursor, self.id)[1:][-BATCHES_AWAITED:]
            for workflow in (*reversed(latest), self.id):
                room = STEPS_AWAITED - len(found)
                if room > 0:
                    found += workflows.last_to_end(cursor, workflow, room)
            return found

    def _read(self) -> Row:
        if self._row is None:
            self.refresh()
        assert self._row is not None
        return self._row

    def _has_ended(self, timeout: Duration | None) -> bool:
        self.refresh()
        ended = self.status not in ("running", "compensating")
        if not ended:
            refuse_vain_wait(
                self.id, self.status, is_endless=timeout is None, what="Workflow"
            )
        return ended

    def _outcome(self) -> Any:
        row = self._read()
        if row.state in ("running", "compensating"):
            raise ResultTimeout(
                f"Workflow {self.id} is {row.state}: {row.succeeded:,} of "
                f"{row.steps:,} steps have succeeded; it has not ended within the "
                f"timeout."
            )
        if row.state != "succeeded":
            raise WorkflowFailed(self.id, row.state, self._first_failure())
        with database.cursor() as cursor:
            texts = workflows.results(cursor, self.id)
        what = f"A result of workflow {self.id}"
        values = [decode_result(text, what) for text in texts]
        return values if row.is_list else values[0]

    def _first_failure(self) -> str:
        with database.cursor() as cursor:
            every = workflows.find(cursor, workflows.batches_in(cursor, self.id))
        failed = [each.id for each in every.values() if each.dead + each.cancelled]
        found = (WorkflowResult(each).steps() for each in sorted(failed))
        for step in chain.from_iterable(found):
            if step.state in ("dead", "expired") or (
                step.state == "cancelled" and step.started_at is not None
            ):
                why = words_of(json.loads(step.error)) if step.error else ""
                return (
                    f"Step {step.name} (job {step.id}) is {step.state}. {why}".strip()
                )
        return ""


# Members ------------------------------------------------------------------------------


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
            reason, why = error.get("reason"), words_of(error)
            raise JobFailed(self.id, self.status, reason, why)
        return decode_result(self._result, f"The result of job {self.id}")


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
