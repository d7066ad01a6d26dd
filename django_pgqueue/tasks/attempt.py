"""
Attempt: from arguments that were read to what becomes of the job, and of its run.

The order of every attempt, whoever makes it: refuse() and prepare(), which say before
whether it runs; then the other calls of its run are read, all of them are told as
started, the task is called, and each call gets its end. Threads, runners and tests call
attempt(); an event loop takes its two halves, and awaits the task between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from django_pgqueue import telemetry
from django_pgqueue.conf import Settings
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.context import JobControl
from django_pgqueue.tasks.gathered import Collected, collect
from django_pgqueue.tasks.perform import Guard, Performed, Prepared, perform, unguarded


def attempt(
    job: Claimed,
    prepared: Prepared,
    settings: Settings,
    *,
    installation: str,
    control: JobControl,
    guard: Guard = unguarded,
    others: Sequence[Claimed] = (),
    to: telemetry.Sink = telemetry.WORKER,
) -> tuple[Performed, Sequence[Performed]]:
    """
    Run a job; return what becomes of it, and of each of *others*.

    Args as of perform(), and: *others*, the other calls of its run, of a task with
    accumulate; *to*, where it is told that they start.
    """
    run = None
    if prepared.options.accumulate is not None:
        run = begin_run(job, prepared, others, settings, to=to)
        prepared = run.prepared
    telemetry.started(prepared.task, job, to=to)
    performed = perform(
        job, prepared, settings, installation=installation, control=control, guard=guard
    )
    return (performed, ()) if run is None else run.shared(performed)


def begin_run(
    job: Claimed,
    prepared: Prepared,
    others: Sequence[Claimed],
    settings: Settings,
    *,
    to: telemetry.Sink = telemetry.WORKER,
) -> Collected:
    """Read the calls of *others*, and tell that those start that can."""
    run = collect(job, prepared, others, settings)
    for other in run.fit:
        telemetry.started(prepared.task, other, to=to)
    return run
