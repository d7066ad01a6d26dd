"""
Gathered: one run of a task for many calls, and what becomes of each.

The outcome of the run is the outcome of each of its calls, decided by its own row:
its attempts, its age. A call that cannot be read, or may not run, ends by itself, and
the others run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from django_pgqueue.conf import Settings
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.accumulate import Call
from django_pgqueue.tasks.errors import message_of, traceback_of
from django_pgqueue.tasks.options import ResolvedOptions
from django_pgqueue.tasks.outcome import (
    Cancelled,
    Outcome,
    Performed,
    Retried,
    Shared,
    Succeeded,
    outcome_after,
)
from django_pgqueue.tasks.prepare import Prepared, prepare, refuse

BY_ID = attrgetter("id")


@dataclass(slots=True)
class Collected:
    """The calls of one run."""

    # The task of the job that leads the run, with all calls as its one argument.
    prepared: Prepared
    job: Claimed
    others: list[Claimed]
    # What becomes of others that cannot run, by their ids.
    unfit: dict[int, Performed]

    @property
    def fit(self) -> list[Claimed]:
        """The other jobs whose calls the task gets."""
        return [job for job in self.others if job.id not in self.unfit]

    def shared(self, performed: Performed) -> tuple[Performed, list[Performed]]:
        """
        Return what becomes of the job that leads, and of each of the others.

        Args:
            performed: How the run ended.
        """
        jobs = [self.job, *self.fit]
        shares = iter(share(performed, jobs, self.prepared.options))
        leading = next(shares)
        return leading, [self.unfit.get(job.id) or next(shares) for job in self.others]


def collect(
    job: Claimed, prepared: Prepared, others: Sequence[Claimed], settings: Settings
) -> Collected:
    """
    Read the calls of *others*, and put them with that of *job*.

    Args:
        job: The job that leads the run.
        prepared: Its task and its arguments.
        others: Gathered ones of the same task.
        settings: As in prepare().
    """
    calls = [_call(job, prepared)]
    unfit: dict[int, Performed] = {}
    headers = []
    for other in others:
        ready = refuse(other, settings) or prepare(other, settings)
        if isinstance(ready, Performed):
            unfit[other.id] = ready
        else:
            calls.append(_call(other, ready))
            headers.append(ready.headers)
    calls.sort(key=BY_ID)
    run = replace(prepared, args=[calls], kwargs={}, other_headers=headers)
    return Collected(run, job, list(others), unfit)


def share(
    performed: Performed, jobs: Sequence[Claimed], options: ResolvedOptions
) -> list[Performed]:
    """
    Return what becomes of each of *jobs*, all of which ran.

    Args:
        performed: How the run ended, and what that means for the first of them.
        jobs: The job that leads the run, and the others.
        options: Of their task.
    """
    error = performed.error
    words = None
    if error is not None:
        # Once, and not for each: the text of a traceback takes long to make.
        words = message_of(error), traceback_of(error)
    # What failed together comes back together, to run together again.
    drawn = random.random()

    def outcome(job: Claimed) -> Outcome:
        if error is None or _is_for_all(performed.outcome):
            return performed.outcome
        ran_seconds = performed.ran_seconds or 0.0
        return outcome_after(job, options, error, False, ran_seconds, lambda: drawn)

    return [
        Shared(
            outcome(job),
            error,
            performed.ran_seconds,
            performed.result,
            performed.note,
            performed.settled,
            leaves_no_trace=performed.leaves_no_trace,
            # What a run has told stands with the job that leads it.
            log=performed.log if job is jobs[0] else None,
            emitted=performed.emitted if job is jobs[0] else None,
            words=words,
        )
        for job in jobs
    ]


def heed_cancel(performed: Performed) -> None:
    """
    Let a call that was asked to stop end so, if its run has failed.

    A run goes on for the sake of its other calls. One that succeeded has done the work
    of this one too.
    """
    if performed.error is not None:
        performed.outcome = Cancelled()


def _is_for_all(outcome: Outcome) -> bool:
    """Whether what became of one call holds for each, whatever its attempts."""
    if isinstance(outcome, Retried):
        return outcome.gives_attempt_back
    return isinstance(outcome, Succeeded)


def _call(job: Claimed, prepared: Prepared) -> Call:
    return Call(job.id, prepared.args, prepared.kwargs, job.enqueued_at, job.attempt)
