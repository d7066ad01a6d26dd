"""
workflows_*: what steps cost, beside jobs that nobody waits for, on the same worker.

A chain, whose steps come one by one; a chord, whose members end side by side; and jobs
of no workflow, whose deletes the triggers look at all the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise

from django.db import transaction

from django_pgqueue.management.bench import gauges
from django_pgqueue.management.bench.drain import drained
from django_pgqueue.management.bench.latency import latencies
from django_pgqueue.management.bench.measure import (
    Goal,
    Measure,
    Opener,
    Plan,
    Run,
    Turns,
    at_least,
)
from django_pgqueue.management.bench.scratch import Scratch
from django_pgqueue.management.bench.tasks import batched, payloads, tells_time
from django_pgqueue.management.bench.worker import Worker
from django_pgqueue.models import ArchivedJob, Step
from django_pgqueue.tasks.canvas import chain, chord
from django_pgqueue.tasks.workflow_result import WorkflowResult

# Locks: ACCESS EXCLUSIVE on the tables, for a moment; they are empty, and ours.
SWITCH = """
ALTER TABLE pgqueue_job {what} TRIGGER pgqueue_jobs_gone;
ALTER TABLE pgqueue_dead_letter {what} TRIGGER pgqueue_letters_gone
"""

# A chain has two steps, or nothing comes after anything.
STEPS_MIN = 2


class _Beside(Turns):
    def __init__(self, scratch: Scratch, worker: Worker) -> None:
        super().__init__(scratch)
        self._worker = worker


class Chain(_Beside):
    """Product: from step to step. The other side: delay(), on the same idle worker."""

    def product(self, jobs: int) -> Run:
        """Return from each start to that of the next step, in milliseconds."""
        self._worker.rest()
        result = chain(*(tells_time.si(**item) for item in payloads(jobs))).delay()
        last = _last_step(self.scratch, result)
        self._worker.wait_while(
            lambda: not gauges.succeeded(self._worker.cursor, last, last)
        )
        archived = ArchivedJob.objects.using(self.scratch.alias).order_by("id")
        started_at = list(archived.values_list("result", flat=True))
        return Run([(b - a) * 1_000 for a, b in pairwise(started_at)])

    def yardstick(self, jobs: int) -> Run:
        """Return a latency per job, in milliseconds."""
        self._worker.rest()
        return latencies(self.scratch, self._worker, jobs)


class Chord(_Beside):
    """Product: members, and a body. The other side: as many jobs of no workflow."""

    def product(self, jobs: int) -> Run:
        """Return members per second, from the commit to the end of the body."""
        members = [batched.si(**item) for item in payloads(jobs)]
        canvas = chord(members, batched.si(order_id=jobs, note=""))
        self._worker.rest()
        committed_at: list[float] = []
        with transaction.atomic(using=self.scratch.alias):
            # Registered first, so it runs between the commit and the wake.
            transaction.on_commit(
                lambda: committed_at.append(time.monotonic()), using=self.scratch.alias
            )
            result = canvas.delay()
        body = _last_step(self.scratch, result)
        seconds = self._worker.wait_until_one_is_done(
            body, count=jobs + 1, since=committed_at[0]
        )
        return Run([jobs / seconds])

    def yardstick(self, jobs: int) -> Run:
        """Return jobs per second."""
        return drained(self.scratch, self._worker, batched, jobs)


class Triggers(_Beside):
    """Product: jobs of no workflow. The other side: the same without the triggers."""

    def product(self, jobs: int) -> Run:
        """Return jobs per second."""
        return drained(self.scratch, self._worker, batched, jobs)

    def yardstick(self, jobs: int) -> Run:
        """Return jobs per second."""
        self._worker.cursor.execute(SWITCH.format(what="DISABLE"))
        try:
            return drained(self.scratch, self._worker, batched, jobs)
        finally:
            self._worker.cursor.execute(SWITCH.format(what="ENABLE"))


def _last_step(scratch: Scratch, result: WorkflowResult) -> int:
    steps = Step.objects.using(scratch.alias).filter(workflow_id=result.id)
    return int(steps.values_list("id", flat=True).order_by("-id")[0])


def _with_worker(kind: type[_Beside]) -> Mapping[str, Opener]:
    @contextmanager
    def opened(scratch: Scratch, plan: Plan) -> Iterator[_Beside]:
        with Worker(scratch, threads=8) as worker:
            yield kind(scratch, worker)

    return {"": opened}


WORKFLOWS_CHAIN = Measure(
    name="workflows_chain",
    what='start of a step to start of the next one, settle="immediate"',
    unit="ms",
    jobs=100,
    jobs_min=STEPS_MIN + 1,
    goals=(Goal("ratio", 1.5, is_at_most=True),),
    baseline="delay() on an idle worker",
    other_side="delay()",
    parts=_with_worker(Chain),
    warm_up_jobs=10,
    is_latency=True,
)

WORKFLOWS_CHORD = Measure(
    name="workflows_chord",
    what="a chord of members that do nothing, beside as many jobs",
    unit="jobs/s",
    jobs=10_000,
    goals=(at_least(0.77),),
    baseline="jobs of no workflow",
    other_side="no workflow",
    parts=_with_worker(Chord),
)

WORKFLOWS_NONE = Measure(
    name="workflows_none",
    what="jobs of no workflow, beside the same without the triggers",
    unit="jobs/s",
    jobs=20_000,
    goals=(at_least(0.95),),
    baseline="the triggers are disabled",
    other_side="without",
    parts=_with_worker(Triggers),
)
