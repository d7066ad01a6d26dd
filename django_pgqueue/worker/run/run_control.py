"""
Run control: what the context of a run of many calls does to its jobs.

The context is that of the job that leads. What it extends, it extends for all; it is
asked to stop when all of them are.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django_pgqueue.worker.run.call_collector import Run
from django_pgqueue.worker.run.control import Control, JobServices


class RunControl(Control):
    """The JobControl of a run."""

    __slots__ = ("run",)

    def __init__(self, services: JobServices, run: Run) -> None:
        super().__init__(services, run.held, run.prepared)
        self.run = run

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has asked all jobs of the run to stop."""
        return self.run.is_cancelled

    def when_cancelled(self, call: Callable[[], None]) -> None:
        """Call this when is_cancelled becomes true."""
        self.run.when_cancelled(call)

    def extend(self, duration: timedelta | None) -> None:
        """Let all leases end no sooner than this from now; LeaseLost, WrongState."""
        super().extend(duration)
        seconds = self._services.leases.lease_seconds
        if duration is not None:
            seconds = duration.total_seconds()
        if self.run.others:
            self._services.collector.extend(self.run.others, seconds)
