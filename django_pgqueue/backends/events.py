"""
Events: what happens to a job, as the signals of django.tasks.

Connected for each task of django.tasks by itself, so that other tasks' jobs pay nothing
for them. The sender is the backend's class, as with Django's own backends.
"""

from __future__ import annotations

import traceback
from typing import Any

from django_pgqueue import signals
from django_pgqueue.backends.django_api import (
    AnyResult,
    AnyTask,
    TaskResultStatus,
    task_finished,
    task_started,
)
from django_pgqueue.backends.results import signalled_result
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.tasks.payload import decode_value
from django_pgqueue.tasks.task import Task


def _finish(backend: type, result: AnyResult, error: BaseException | None) -> None:
    """Send task_finished; receivers find *error* in sys.exc_info(), as Django's log."""
    if error is None:
        task_finished.send(sender=backend, task_result=result)
        return
    trace, context = error.__traceback__, error.__context__
    try:
        raise error
    except BaseException:
        # As it was: not raised here, and not while something else was handled.
        error.__traceback__, error.__context__ = trace, context
        task_finished.send(sender=backend, task_result=result)


def listen(task: Task[..., Any], django_task: AnyTask, backend: type) -> None:
    """Send django.tasks' signals for the jobs of *task*, with *backend* as sender."""

    def started(job: Claimed, **kwargs: Any) -> None:
        result = signalled_result(django_task, job, TaskResultStatus.RUNNING)
        task_started.send(sender=backend, task_result=result)

    def succeeded(job: Claimed, **kwargs: Any) -> None:
        text = kwargs.get("result")
        result = signalled_result(
            django_task,
            job,
            TaskResultStatus.SUCCESSFUL,
            value=None if text is None else decode_value(text),
        )
        task_finished.send(sender=backend, task_result=result)

    def failed(job: Claimed, **kwargs: Any) -> None:
        error = kwargs.get("error")
        result = signalled_result(
            django_task,
            job,
            TaskResultStatus.FAILED,
            error=error,
            trace="".join(traceback.format_exception(error)) if error else "",
        )
        _finish(backend, result, error)

    signals.job_started.connect(started, sender=task, weak=False)
    signals.job_succeeded.connect(succeeded, sender=task, weak=False)
    for ended in (signals.job_dead, signals.job_cancelled, signals.job_expired):
        ended.connect(failed, sender=task, weak=False)
