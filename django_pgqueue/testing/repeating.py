"""
Repeating: the same job twice, as a queue that delivers at least once may do it.

A real death of a process cannot be shown inside a test's transaction, which no other
process sees. What it leaves behind can: here a run ends at a chosen point, nothing is
settled, and from that point on every statement of the run is refused, as those of a
dead process would be. So what was committed before stays, and what was open rolls back.
What cannot be shown is a process without its last words: ``finally`` blocks run, and
what they do outside of the database is done.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest import mock

from django.db import connections

from django_pgqueue.conf import get_settings
from django_pgqueue.exceptions import JobFailed
from django_pgqueue.models import Job
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import lease
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks import inline
from django_pgqueue.tasks.outcome import Performed, Succeeded
from django_pgqueue.tasks.payload import decode_value
from django_pgqueue.tasks.result import JobResult
from django_pgqueue.tasks.task import Task
from django_pgqueue.testing.access import explained
from django_pgqueue.testing.asserting import resolved
from django_pgqueue.testing.matching import Parameters, short

R = TypeVar("R")

WORKER = "testing"

START, END, BEFORE, AFTER = "start", "end", "before", "after"

REDELIVERIES_MAX = 100

# What ends a transaction that a dead process had open.
ALLOWED = ("ROLLBACK", "RELEASE", "SAVEPOINT")


class Died(BaseException):
    """Stands for the death of the process that runs a task."""


def crash_once(
    task: Task[..., R] | JobResult[R] | Job | int,
    /,
    *args: Any,
    at: str = END,
    **kwargs: Any,
) -> R | None:
    """
    Run a job, lose its worker at a point, and run it again as its next worker would.

        crash_once(import_file, "7.csv")                          # done, and not acked
        crash_once(send_email, 7, at="after:postoffice.tasks.deliver")

    The delivery that is lost counts as a crash and gives its attempt back. From the
    point on, no statement of it reaches the database; what was open rolls back.

    Args:
        task: The task, which is enqueued with args and kwargs; or a job that is due: a
            JobResult, a Job or an id.
        args: Positional arguments.
        at: "start", before the task's first line; "end", after it has returned and
            before the ack (with atomic=True: before the commit of both);
            "before:path.to.function" or "after:path.to.function", around the first
            call of a function, looked up where the task looks it up, as mock.patch.
        kwargs: Keyword arguments.

    Returns:
        What the second run returned, as its result is stored.

    Raises:
        AssertionError: The first run ended without reaching the point.
        JobFailed: The second run did not run, or did not end.
        Exception: What the second run failed with.
        ValueError: The point is no point, or the job is not due.
    """
    __tracebackhide__ = True
    point = Point(at)
    with _job_of(task, args, kwargs, {"at": at != END}, "crash_once()") as job_id:
        job = _claimed(job_id)
        performed, control = _delivered(job, point)
        if not point.reached:
            inline.settle_job(job, performed, worker=WORKER, control=control)
            raise AssertionError(
                f"{short(job.task)} ended without reaching {at!r}: {_ended(performed)}."
            )
        if control.has_word:
            # Said and committed before the crash: nobody will deliver it again.
            inline.settle_job(job, performed, worker=WORKER, control=control)
            return None
        _take_back(job, crashed=True)
        result: R | None = _last(job_id, 2)
        return result


def redeliver(
    task: Task[..., R] | JobResult[R] | Job | int,
    /,
    *args: Any,
    times: int = 2,
    **kwargs: Any,
) -> list[R | None]:
    """
    Run the same job several times, as if each ack but the last had been lost.

        assert ["sent", "was sent before"] == redeliver(send_email, 7)

    It is one job: its id, idempotency key and attempt are the same in each run, and the
    number of its delivery grows. With atomic=True the runs whose ack is lost roll back.

    Args:
        task: As in crash_once.
        args: Positional arguments.
        times: Runs in all, 2 to 100.
        kwargs: Keyword arguments.

    Returns:
        What each run returned, as its result is stored.

    Raises:
        AssertionError: The job is never delivered again: it was acked before its end.
        Exception: What a run failed with.
        ValueError: *times* is out of its range, or the job is not due.
    """
    __tracebackhide__ = True
    if not 2 <= times <= REDELIVERIES_MAX:
        raise ValueError(f"times={times}: it must be from 2 to {REDELIVERIES_MAX}.")
    results: list[Any] = []
    with _job_of(task, args, kwargs, {"times": times != 2}, "redeliver()") as job_id:
        for number in range(1, times):
            job = _claimed(job_id)
            performed, control = _delivered(job, Point(END))
            if control.has_word or not isinstance(performed.outcome, Succeeded):
                inline.settle_job(job, performed, worker=WORKER, control=control)
                _raise_failure(job, performed, number)
                raise AssertionError(
                    f"{short(job.task)} is not delivered again: its job was acked "
                    f"before the task ended, which gives at most one run."
                )
            results.append(_result(performed))
            _take_back(job, crashed=False)
        results.append(_last(job_id, times))
    return results


class Point:
    """Where a run dies."""

    def __init__(self, at: str) -> None:
        when, _, path = at.partition(":")
        is_plain = when in (START, END) and not path
        if not is_plain and not (when in (BEFORE, AFTER) and "." in path):
            raise ValueError(
                f"at={at!r}: it must be 'start', 'end', 'before:path.to.function' or "
                f"'after:path.to.function'."
            )
        self.when = when
        self.reached = False
        self._target = _found(path) if path else None

    def die(self) -> None:
        """Die here."""
        self.reached = True
        raise Died

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Let the function that the point names die; only once it is called."""
        if self._target is None:
            yield
            return
        owner, name, original = self._target
        with mock.patch.object(owner, name, self._around(original)):
            yield

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.when == BEFORE:
                self.die()
            original(*args, **kwargs)
            self.die()

        @functools.wraps(original)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            if self.when == BEFORE:
                self.die()
            await original(*args, **kwargs)
            self.die()

        return acall if inspect.iscoroutinefunction(original) else call


class _Control(inline.Control):
    """Dies where the ack of an atomic task would be written."""

    __slots__ = ("_point", "unacked")

    def __init__(self, job: Claimed, point: Point) -> None:
        super().__init__(job, WORKER)
        self._point = point
        # How the run ended that was then rolled back.
        self.unacked: Performed | None = None

    def ack_within(self, cursor: Cursor, performed: Performed) -> bool | None:
        if self._point.when == END or self._point.reached:
            self.unacked = performed
            self._point.die()
        return super().ack_within(cursor, performed)


@contextmanager
def _job_of(
    subject: Any, args: Any, kwargs: Any, given: dict[str, bool], what: str
) -> Iterator[int]:
    """Yield the id of the job, enqueued if need be; hold back what it enqueues."""
    with explained(what), inline.collecting() as waiting:
        if isinstance(subject, (JobResult, Job, int)):
            if args or kwargs:
                raise TypeError(f"{what} takes arguments only with a task.")
            job_id = subject if isinstance(subject, int) else subject.id
        else:
            task = resolved(subject)
            _refuse_clash(task, given, what)
            job_id = task.delay(*args, **kwargs).id
        yield job_id
        inline.run_waiting(waiting)


def _refuse_clash(task: Task[..., Any], given: dict[str, bool], what: str) -> None:
    """Refuse a keyword that the task has, too: nobody knows which is meant."""
    names = Parameters(task).names
    for name, is_given in given.items():
        if is_given and name in names:
            raise TypeError(
                f"{what} and {task.name} both have an argument {name!r}: enqueue the "
                f"job yourself and give what delay() returned."
            )


def _claimed(job_id: int) -> Claimed:
    job = inline.claim_job(job_id, worker=WORKER)
    if job is None:
        raise ValueError(
            f"Job {job_id} is {JobResult[Any](job_id).status} and cannot run now: it "
            f"must be due, and its queue not paused. For one with a time, freeze() the "
            f"clock and advance() it."
        )
    return job


def _delivered(job: Claimed, point: Point) -> tuple[Performed, inline.Control]:
    """Run a job up to the point; nothing is settled."""
    control = _Control(job, point)
    if point.when == START:
        point.reached = True
        return Performed(Succeeded(), settled=False), control

    def guard(call: Callable[[], Any]) -> Any:
        with point.armed(), _dead_after(point):
            return call()

    performed = inline.deliver(job, control, guard)
    if point.when == END and performed.settled is None:
        point.reached = True
    return control.unacked or performed, control


@contextmanager
def _dead_after(point: Point) -> Iterator[None]:
    """Keep what runs after the point from reaching the database."""

    def refuse(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if point.reached and not str(sql).lstrip().upper().startswith(ALLOWED):
            raise Died
        return execute(sql, params, many, context)

    with ExitStack() as stack:
        for connection in connections.all():
            stack.enter_context(connection.execute_wrapper(refuse))
        yield


def _take_back(job: Claimed, *, crashed: bool) -> None:
    """Take the lease from the worker, which is gone: as its supervisor would."""
    with connections[get_settings().database].cursor() as cursor:
        if crashed:
            lease.rescue(
                cursor,
                worker=WORKER,
                running=[(job.id, job.delivery)],
                lease=inline.LEASE,
                message="crash_once() lost the worker here.",
            )
        else:
            leases = [(job.id, job.delivery, job.due_at)]
            lease.release(cursor, worker=WORKER, leases=leases)


def _last(job_id: int, number: int) -> Any:
    """Run a job to its end; return its result."""
    job = _claimed(job_id)
    run = inline.run_claimed(job, worker=WORKER)
    _raise_failure(job, run.performed, number)
    return _result(run.performed)


def _raise_failure(job: Claimed, performed: Performed, number: int) -> None:
    outcome, error = performed.outcome, performed.error
    if isinstance(outcome, Succeeded) and error is None:
        return
    where = f"run {number} of job {job.id}, {job.task}"
    if error is not None:
        error.add_note(f"This was {where}.")
        raise error
    result: JobResult[Any] = JobResult(job.id)
    raise JobFailed(job.id, result.status, result.reason, f"This was {where}.")


def _result(performed: Performed) -> Any:
    return None if performed.result is None else decode_value(performed.result)


def _ended(performed: Performed) -> str:
    if performed.error is not None:
        return f"it raised {performed.error!r}"
    return "it returned"


def _found(path: str) -> tuple[Any, str, Callable[..., Any]]:
    """Return who holds the function *path*, its name there, and the function."""
    owner_path, _, name = path.rpartition(".")
    owner: Any = None
    parts = owner_path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            owner = getattr(owner, part, None)
        break
    original = getattr(owner, name, None)
    if not callable(original):
        raise ValueError(f"There is no function {path!r} to die at.")
    return owner, name, original
