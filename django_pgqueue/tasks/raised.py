"""
Raised: what a task raises to say what becomes of its job. See outcome.py.

Apart from what follows, since every process that declares a task loads this.
"""

from __future__ import annotations

from django_pgqueue.options.durations import Duration, as_timedelta


class Reject(Exception):
    """
    Raised by a task: this job can never succeed. It becomes a dead letter at once.

    Args:
        why: Shown beside the dead letter.
    """

    def __init__(self, why: str = "rejected by the task") -> None:
        super().__init__(why)
        self.why = why


class Cancel(Exception):
    """Raised by a task: there is nothing left to do. The job ends as cancelled."""


class _Later(Exception):
    def __init__(
        self, delay: Duration | None = None, *, seconds: float | None = None
    ) -> None:
        if (delay is None) == (seconds is None):
            raise TypeError(
                f"{type(self).__name__} takes one delay: a duration, or seconds=…"
            )
        value = seconds if delay is None else delay
        assert value is not None
        self.delay = as_timedelta(value, name=type(self).__name__)
        super().__init__(f"again in {self.delay.total_seconds():g} s")


class Snooze(_Later):
    """Raised by a task: run me later; this was no attempt."""


class RetryLater(_Later):
    """
    Raised by a task: this attempt failed; the next one is due in *delay*.

    Burns an attempt. The last one makes the job a dead letter, as any failure does.
    """


class AskedAgain(Exception):
    """What a context's retry() stands for when it names no delay: the policy's."""
