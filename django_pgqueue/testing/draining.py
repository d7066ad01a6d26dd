"""Drain: run due jobs here and now, as workers would, or each when it is enqueued."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.db import connections
from django.db.models.functions import Now
from django.test import override_settings

from django_pgqueue.conf import get_settings
from django_pgqueue.models import Job
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.queues import claim, suspects
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.lanes import promote_all
from django_pgqueue.tasks import inline
from django_pgqueue.tasks.outcome import Cancelled, Expired, GaveUp, Retried
from django_pgqueue.testing.access import explained

WORKER = "drain"

# A task that enqueues itself would drain for ever.
DRAIN_JOBS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a job in drain()."""

    id: int
    task: str
    queue: str
    attempt: int
    # succeeded, cancelled, expired, dead, retrying (it failed), scheduled (it snoozed).
    status: str
    error: BaseException | None  # What it failed with.

    def __str__(self) -> str:
        why = "" if self.error is None else f": {self.error!r}"
        return f"job {self.id}: {self.task}, attempt {self.attempt}, {self.status}{why}"


class Drained(int):
    """
    How many jobs drain() ran: a number that knows which they were.

    Attributes:
        runs: A Ran for each run, in their order.
    """

    runs: tuple[Ran, ...]

    def __new__(cls, runs: Sequence[Ran]) -> Drained:
        """Make it of what ran."""
        made = super().__new__(cls, len(runs))
        made.runs = tuple(runs)
        return made

    @property
    def statuses(self) -> Counter[str]:
        """How many runs ended in each status."""
        return Counter(run.status for run in self.runs)

    @property
    def errors(self) -> list[BaseException]:
        """What runs failed with, in their order."""
        return [run.error for run in self.runs if run.error is not None]

    def __repr__(self) -> str:
        told = ", ".join(f"{count} {name}" for name, count in self.statuses.items())
        return f"<Drained {int(self)}{': ' if told else ''}{told}>"


def drain(
    queue: str | None = None,
    *,
    retries: bool = False,
    raise_errors: bool = False,
    max_jobs: int | None = None,
) -> Drained:
    """
    Run every due job in this thread, also those that jobs enqueue; return how many.

    Jobs that publish messages by run_after are among them. A job that fails is settled
    by its policy, as a worker does it. What a task
    registers with on_commit runs after it, although a TestCase never commits. Calls of
    a task with accumulate run together, as its size and their keys say, and do not wait
    until its time is over.

    Args:
        queue: Only this queue; None: all.
        retries: Whether a job that failed runs again at once, until it has succeeded or
            used up its attempts; else its next attempt is due later and is left. A
            snooze is no failure: it is always left.
        raise_errors: Whether the first failure is raised, once it is settled. Snooze,
            RetryLater and Cancel are no failures.
        max_jobs: Stop after as many runs; None: when nothing is due any more.

    Returns:
        The number of runs, as an int that has ``runs``, ``statuses`` and ``errors``.

    Raises:
        RuntimeError: Without max_jobs, more than 10,000 jobs ran: a task enqueues
            itself. Or the test may not use the database.
    """
    __tracebackhide__ = True
    ran: list[Ran] = []
    with explained("drain()"), inline.collecting() as waiting:
        while max_jobs is None or len(ran) < max_jobs:
            job = (
                _next(queue)
                or (_next(queue) if _promote() else None)
                or _next_call(queue)
                # Its time may have come since the look for what is due.
                or ((_next_retry(queue) or _next(queue)) if retries else None)
            )
            if job is None:
                break
            if max_jobs is None and len(ran) >= DRAIN_JOBS_MAX:
                raise RuntimeError(
                    f"drain() ran {DRAIN_JOBS_MAX:,} jobs and there are more: does "
                    f"{job.task} enqueue itself?"
                )
            run = inline.run_claimed(job, worker=WORKER)
            ran += map(_ran, (run, *run.others))
            if raise_errors and run.failure is not None:
                raise run.failure
        if max_jobs is None:
            # Immediate mode: what jobs enqueued in queues that are not drained.
            inline.run_waiting(waiting)
    return Drained(ran)


def _next(queue: str | None) -> Claimed | None:
    inline.about_to_claim()
    with connections[get_settings().database].cursor() as cursor:
        names = [name for name in _queue_names(cursor) if queue in (None, name)]
        jobs = claim.claim(
            cursor, queues=names, worker=WORKER, limit=1, lease=inline.LEASE
        ) or suspects.claim_suspects(
            cursor, queues=names, worker=WORKER, limit=1, lease=inline.LEASE
        )
    return jobs[0] if jobs else None


def _promote() -> int:
    """Let jobs through that wait in lanes; return how many."""
    with connections[get_settings().database].cursor() as cursor:
        return promote_all(cursor)


def _next_call(queue: str | None) -> Claimed | None:
    """Claim a call that waits for others: in a test, nobody would wait with it."""
    rows = Job.objects.using(get_settings().database).scheduled()
    rows = rows.filter(
        accumulate_key__isnull=False, deliveries=0, run_after__isnull=True
    )
    if queue is not None:
        rows = rows.filter(queue=queue)
    job_id = rows.order_by("pk").values_list("pk", flat=True).first()
    if job_id is None:
        return None
    make_due(job_id)
    return inline.claim_job(job_id, worker=WORKER)


def _next_retry(queue: str | None) -> Claimed | None:
    """Claim the job whose next attempt is the nearest, of those that failed."""
    alias = get_settings().database
    rows = Job.objects.using(alias).retrying().order_by("visible_at", "pk")
    if queue is not None:
        rows = rows.filter(queue=queue)
    for job_id, deliveries, errors in rows.values_list("pk", "deliveries", "errors"):
        # A snooze leaves no error of its own behind.
        if not any(error.get("delivery") == deliveries for error in errors):
            continue
        make_due(job_id)
        claimed = inline.claim_job(job_id, worker=WORKER)
        if claimed is not None:
            return claimed
    return None


def make_due(job_id: int) -> None:
    """Let the time pass that a job waits for."""
    rows = Job.objects.using(get_settings().database).filter(pk=job_id)
    rows.update(visible_at=Now())


def _queue_names(cursor: Cursor) -> list[str]:
    return [known.name for known in claim.known_queues(cursor) if not known.is_paused]


def _ran(run: inline.Run) -> Ran:
    job, outcome = run.job, run.performed.outcome
    status = "succeeded"
    if isinstance(outcome, GaveUp):
        status = "dead"
    elif isinstance(outcome, Expired):
        status = "expired"
    elif isinstance(outcome, Cancelled):
        status = "cancelled"
    elif isinstance(outcome, Retried):
        attempts = job.attempt - outcome.gives_attempt_back
        status = "retrying" if attempts else "scheduled"
    error = run.performed.error if run.failure is not None else None
    return Ran(job.id, job.task, job.queue, job.attempt, status, error)


@contextmanager
def immediate(*, raise_errors: bool = False) -> Iterator[None]:
    """
    Let delay() run its job at once, in the caller's thread and transaction.

        with immediate():
            result = send_receipt.delay(7)
        assert result.status == "succeeded"

    The job is stored, run and settled as drain() does it, and so are jobs that it
    enqueues, each when the one before it has ended. A job with a time in the future
    stays stored, and so does one that failed and waits for its next attempt. Also a
    decorator of a function or a method; for a whole suite there is PGQUEUE["MODE"].

    Args:
        raise_errors: Whether delay() raises what the job failed with, once that is
            settled; by default the job's row tells.
    """
    with moded("immediate", raise_errors=raise_errors):
        yield


@contextmanager
def moded(mode: str | None, *, raise_errors: bool = False) -> Iterator[None]:
    """Run a block in *mode*; None: that of the settings."""
    said = dict(getattr(settings, "PGQUEUE", {}))
    if mode is not None:
        said["MODE"] = mode
    with override_settings(PGQUEUE=said), inline.raising(raise_errors):
        yield
