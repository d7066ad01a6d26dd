"""Capture: the jobs that a block of code enqueues, as they were enqueued."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_pgqueue.conf import get_settings
from django_pgqueue.models import Job
from django_pgqueue.tasks import inline
from django_pgqueue.testing import frozen
from django_pgqueue.testing.access import MODELS, as_enqueued, explained, latest_id
from django_pgqueue.testing.asserting import Subject, check_absent, check_present


class Captured(list[Job]):
    """
    The jobs that were enqueued inside capture(), in the order of the enqueues.

    Filled when the block ends; refresh() fills it earlier.
    """

    def __init__(self) -> None:
        super().__init__()
        self._alias = get_settings().database
        self._seen: dict[int, Job] = {}
        self._after = self._latest()

    def refresh(self) -> Captured:
        """Read what has been enqueued by now; return this."""
        with explained("capture()"):
            self._look()
            kept = self._existing()
        self[:] = [job for job_id, job in sorted(self._seen.items()) if job_id in kept]
        return self

    def assert_enqueued(
        self, task: Subject, /, *args: Any, count: int | None = None, **expected: Any
    ) -> list[Job]:
        """As django_pgqueue.testing.assert_enqueued, of the jobs of this block."""
        __tracebackhide__ = True
        return check_present(self.refresh(), task, args, expected, count)

    def assert_not_enqueued(
        self, task: Subject | None = None, /, *args: Any, **expected: Any
    ) -> None:
        """As django_pgqueue.testing.assert_not_enqueued, of the jobs of this block."""
        __tracebackhide__ = True
        check_absent(self.refresh(), task, args, expected)

    def _look(self) -> None:
        """Remember rows that are new, before a run changes them."""
        frozen.pin_new_rows()
        newest = max(self._seen, default=self._after)
        for job in Job.objects.using(self._alias).filter(pk__gt=newest):
            if not job.deliveries:
                self._seen[job.pk] = job

    def _existing(self) -> set[int]:
        """Return the ids that did not roll back; take in what others ran."""
        existing: set[int] = set()
        for model in MODELS:
            rows: Any = model._base_manager.using(self._alias)
            for row in rows.filter(pk__gt=self._after):
                existing.add(row.pk)
                if row.pk not in self._seen:
                    self._seen[row.pk] = as_enqueued(row)
        return existing

    def _latest(self) -> int:
        with explained("capture()"):
            return latest_id(self._alias)


@contextmanager
def capture() -> Iterator[Captured]:
    """
    Collect the jobs that are enqueued inside the block.

    Also those of SQL and of from_queryset(), and those that ran inside the block: their
    columns are what they were before they ran. What rolled back is not in it.

    Yields:
        A list that is filled when the block ends, in the order of the enqueues: a Job
        each, with id, task, queue, args, kwargs, priority, run_after, headers. Its
        assert_enqueued() and assert_not_enqueued() work inside the block too.
    """
    captured = Captured()
    inline.before_claim.append(captured._look)
    try:
        yield captured
    finally:
        inline.before_claim.remove(captured._look)
    captured.refresh()
