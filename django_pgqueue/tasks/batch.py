"""
Batch: jobs that are waited for together, with what is called once they have ended.

    with batch("import-42", on_success=report.s(42), on_failure=alert.s(42)) as b:
        for row in rows:
            b.add(load_row, row.pk)
    b.progress  # 0.83

All of it is stored when the block ends, in the caller's transaction, or nothing. A job
of a batch may add more to it, by batch_of(ctx): it cannot end meanwhile. Who wants to
add from outside, over several transactions, opens it with start() and ends it with
close(). A batch in a batch, b.batch(…), has its own callbacks; the one around it counts
its jobs, and does not end before it has.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from django.db import connections, transaction

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import InvalidArgument, WrongState, shown
from django_pgqueue.queues import workflows
from django_pgqueue.tasks.canvas import Part, Signature, checked_name, refuse_on_error
from django_pgqueue.tasks.context import JobContext
from django_pgqueue.tasks.database import in_thread, twin
from django_pgqueue.tasks.enqueuer import Enqueuer
from django_pgqueue.tasks.plan import Ends, Plan, add, start
from django_pgqueue.tasks.workflow_result import WorkflowResult

# Callbacks by what people call them, and the kinds of their steps.
CALLBACKS = {
    "on_success": "on_success",
    "on_failure": "on_error",
    "on_complete": "on_complete",
}


class Batch:
    """Jobs that end together. Made by batch(); found by batch_of(), find_batch()."""

    def __init__(
        self,
        key: str | None,
        name: str,
        callbacks: Mapping[str, Signature[Any]],
        around: Batch | None = None,
    ) -> None:
        self._key = key
        self._name = name
        self._callbacks = callbacks
        self._around = around
        self._waiting: list[Part] = []
        # Those that are stored with this one, and whether each is left open.
        self._inner: list[tuple[Batch, bool]] = []
        self._result: WorkflowResult | None = None

    @property
    def result(self) -> WorkflowResult:
        """
        Return its handle, which has status, steps(), get() and cancel().

        Raises:
            RuntimeError: It is not stored yet.
        """
        if self._result is None:
            when = "its block ends, or start()"
            if self._around is not None:
                when = "the block around it ends, and is not where that one was there"
            raise RuntimeError(f"batch {self._name!r} is not stored before {when}")
        return self._result

    @property
    def progress(self) -> float:
        """How many of its jobs, and of the batches in it, have ended, from 0 to 1."""
        return self.result.refresh().progress

    def batch(
        self,
        key: str | None = None,
        *,
        on_success: Signature[Any] | None = None,
        on_failure: Signature[Any] | None = None,
        on_complete: Signature[Any] | None = None,
        name: str = "batch",
    ) -> Batch:
        """
        Return an empty batch that is in this one, which does not end before it has.

            with batch("import-42", on_success=report.s(42)) as b:
                for path in paths:
                    with b.batch(on_failure=alert.s(path)) as part:
                        part.add(load_file, path)

        Its jobs count for the progress of this one, and for how this one ends. Whoever
        cancels this one cancels it, too. It is stored with this one, or at once where
        this one is; up to ten may be around it.

        Args:
            key: As of batch(). One that is there must be in this batch.
            on_success: As of batch(), and the others likewise.
            on_failure: As of batch().
            on_complete: As of batch().
            name: As of batch().

        Raises:
            InvalidArgument: As batch(). When it is stored: the key is that of a batch
                elsewhere, or too many are around it.
            WrongState: When it is stored: this one has ended, or was cancelled.
        """
        return Batch(
            key, *_checked(name, on_success, on_failure, on_complete), around=self
        )

    def add(
        self, call: Enqueuer[Any, Any] | Part, /, *args: Any, **kwargs: Any
    ) -> None:
        """
        Add a job; stored at once where the batch is.

        Args:
            call: A task, also one with using(…); or a signature, a chain or a group,
                which has no further arguments.
            args: Positional arguments.
            kwargs: Keyword arguments.

        Raises:
            InvalidArgument: What is called is none of these.
            WrongState: The batch has ended, or was cancelled.
        """
        self._add([part_of(self._name, call, args, kwargs)])

    def add_many(
        self,
        call: Enqueuer[Any, Any],
        items: Iterable[Sequence[Any] | Mapping[str, Any]],
    ) -> None:
        """
        Add a job per item, by one query where the batch is stored.

        Args:
            call: A task, also one with using(…).
            items: As of bulk(): dicts of keyword arguments, or lists or tuples.
        """
        self._add(
            [
                part_of(self._name, call, (), item)
                if isinstance(item, Mapping)
                else part_of(self._name, call, tuple(item), {})
                for item in items
            ]
        )

    aadd = twin(add)

    def start(self) -> Self:
        """
        Store the batch, with what was added so far, and leave it open.

        Where there is one with this name and key, this stands for it, and what was
        added so far is not.

        Raises:
            InvalidArgument, InvalidOption: As Chain.delay().
        """
        return self._store(is_open=True)

    def close(self) -> bool:
        """
        Let the batch end with its jobs; they may still add some.

        Returns:
            False if it was closed before.
        """
        settings = get_settings()
        with connections[settings.database].cursor() as cursor:
            closed = workflows.close(cursor, self.result.id)
        if settings.mode == "immediate":
            from django_pgqueue.tasks.inline import run_steps

            for step in self.result.steps():
                run_steps(step.id)
                break
        self.result.refresh()
        return closed

    def __enter__(self) -> Self:
        """Begin; nothing is stored yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Store it, closed; an error stores nothing."""
        if kind is not None:
            return
        if self._result is None:
            self._store(is_open=False)
        else:
            self.close()

    async def __aenter__(self) -> Self:
        """Begin, in async code."""
        return self

    async def __aexit__(self, *said: Any) -> None:
        """Store it from async code."""
        await in_thread(functools.partial(self.__exit__, *said))

    def _store(self, *, is_open: bool) -> Self:
        if self._result is not None:
            raise RuntimeError(f"batch {self._name!r} is stored already")
        if self._around is not None and self._around._result is None:
            self._around._inner.append((self, is_open))
        elif not self._inner:
            self._store_alone(is_open=is_open)
        else:
            with transaction.atomic(using=get_settings().database):
                self._store_alone(is_open=True)
                if self.result.created:
                    for inner, stays_open in self._inner:
                        inner._store(is_open=stays_open)
                    if not is_open:
                        self.close()
        return self

    def _store_alone(self, *, is_open: bool) -> None:
        plan = self._planned()
        for name, callback in self._callbacks.items():
            kind = CALLBACKS[name]
            if kind == "on_error":
                plan.on_error(callback)
            else:
                plan.callback(kind, callback)
        self._result = start(
            (plan, Ends(is_list=True)),
            name=self._name,
            key=self._key,
            kind="batch",
            is_open=is_open,
            parent=None if self._around is None else self._around.result.id,
        )

    def _planned(self) -> Plan:
        plan = Plan(get_settings())
        for part in self._waiting:
            part.plan(plan, Ends())
        self._waiting = []
        return plan

    def _add(self, parts: list[Part]) -> None:
        self._waiting += parts
        if self._result is None or not parts:
            return
        if not add(self._result.id, self._planned(), name=self._name):
            status = self._result.refresh().status
            raise WrongState(
                self._result.id,
                status,
                "nothing can be added to it any more. Its own jobs can add while they "
                "run; others before close().",
                what="Workflow",
            )


def part_of(
    what: str, call: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Part:
    """
    Return what is added to a workflow by a call of a task, or as a part.

    Args:
        what: The name of the workflow, for errors.
        call: A task, also one with using(…); or a part, which has its own arguments.
        args: Positional arguments.
        kwargs: Keyword arguments.

    Raises:
        InvalidArgument: It is none of these.
    """
    if isinstance(call, Enqueuer):
        return Signature(call, args, kwargs, is_immutable=True)
    if not isinstance(call, Part):
        problem = f"is {shown(call)}; it must be a task or a part of a workflow"
        raise InvalidArgument(task=what, path="call", problem=problem)
    if args or kwargs:
        problem = "are given; a signature, a chain or a group has its own"
        raise InvalidArgument(task=what, path="args", problem=problem)
    refuse_on_error(what, "call", getattr(call, "error_callback", None))
    return call


def batch(
    key: str | None = None,
    *,
    on_success: Signature[Any] | None = None,
    on_failure: Signature[Any] | None = None,
    on_complete: Signature[Any] | None = None,
    name: str = "batch",
) -> Batch:
    """
    Return an empty batch, to which jobs are added.

    Args:
        key: Of batches with this name and key only the first is stored; a second
            stands for it. None: each is.
        on_success: Called once all jobs have succeeded, if need be after a redrive.
        on_failure: Called once all have ended and some have not succeeded; its first
            argument says which, as of chain(on_error=…).
        on_complete: Called once all have ended, however.
        name: What people call it; up to 255 characters.

    Raises:
        InvalidArgument: A callback is no signature, or the name none.
    """
    return Batch(key, *_checked(name, on_success, on_failure, on_complete))


def _checked(name: str, *given: object) -> tuple[str, dict[str, Signature[Any]]]:
    """Return the name of a batch and its callbacks; raise InvalidArgument."""
    callbacks: dict[str, Signature[Any]] = {}
    for path, callback in zip(CALLBACKS, given, strict=True):
        name, checked = checked_name("batch", name, callback, path=path)
        if checked is not None:
            callbacks[path] = checked
    return name, callbacks


def batch_of(ctx: JobContext) -> Batch | None:
    """
    Return the batch that a job is of, for its task to add to; None: of none. One query.

    It cannot end while the job runs.

    Args:
        ctx: What the task got.
    """
    with connections[get_settings().database].cursor() as cursor:
        found = workflows.batch_of(cursor, ctx.id)
    if found is None:
        return None
    result = WorkflowResult(found, created=False)
    own = Batch(None, result.name, {})
    own._result = result
    return own


def find_batch(key: str, *, name: str = "batch") -> Batch | None:
    """Return the batch with this name and key; None: there is none."""
    with connections[get_settings().database].cursor() as cursor:
        found = workflows.with_key(cursor, name, key, "batch")
    if found is None:
        return None
    own = Batch(key, name, {})
    own._result = WorkflowResult(found, created=False)
    return own
