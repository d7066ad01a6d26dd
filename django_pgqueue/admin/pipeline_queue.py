"""
The queue of the pipeline: how pages run a pipeline job, and what would keep it waiting.

A run is a job of the queue. So it is enqueued in the page's own transaction, and a
worker that serves the queue runs it; without one it waits, and the page says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue.admin.cells import Note
from django_pgqueue.admin.run_permissions import RUN_TASK
from django_pgqueue.conf import get_settings
from django_pgqueue.operators.findings import START_FOR
from django_pgqueue.queues.stats import QueueStats, queue_stats
from django_pgqueue.tasks import database
from django_pgqueue.tasks.registry import find_task
from django_pgqueue.tasks.task import Task
from django_pgqueue.worker.serving import is_served, living_plans

DEFAULT_QUEUE = "default"

# Jobs that are counted.
JOBS_COUNTED_MAX = 100


@dataclass(frozen=True, slots=True)
class Standing:
    """
    How the queue of the pipeline stands.

    Attributes:
        queue: Its name.
        is_served: Whether a living worker takes jobs from it.
        has_pyspark: Whether this process could import it; a worker may differ.
        stats: What waits and runs in it.
    """

    queue: str
    is_served: bool
    has_pyspark: bool
    stats: QueueStats

    @property
    def jobs(self) -> int:
        """How many runs were asked for and have not ended."""
        stats = self.stats
        return stats.ready + stats.running + stats.retrying + stats.scheduled

    def notes(self) -> list[Note]:
        """Return what keeps a run that is asked for from starting."""
        names = {"queue": self.queue, "count": self.stats.ready}
        found = []
        if not self.is_served:
            text = _(
                "No living worker serves the queue %(queue)s: a run that is asked for "
                "here waits until there is one. Start it:"
            )
            found.append(Note(text % names, f"{START_FOR}{self.queue}"))
        if self.stats.paused_at is not None:
            text = _("The queue %(queue)s is paused: a run waits until it is resumed.")
            found.append(Note(text % names))
        if not self.has_pyspark:
            text = _(
                "pyspark is not installed here. Where the worker of the queue "
                "%(queue)s runs, it must be:"
            )
            found.append(Note(text % names, 'pip install "dj-pgqueue[spark]"'))
        if self.stats.ready:
            text = ngettext(
                "%(count)s run is asked for and waits in queue %(queue)s.",
                "%(count)s runs are asked for and wait in queue %(queue)s.",
                self.stats.ready,
            )
            found.append(Note(text % names, is_warning=False))
        return found


def standing() -> Standing:
    """Return how the queue of the pipeline stands now."""
    queue = find_task(RUN_TASK).options.queue or DEFAULT_QUEUE
    with database.cursor() as cursor:
        plans = living_plans(cursor)
        (stats,) = queue_stats(cursor, [queue], JOBS_COUNTED_MAX)
    return Standing(
        queue=queue,
        is_served=is_served(queue, plans),
        has_pyspark=find_spec("pyspark") is not None,
        stats=stats,
    )


def enqueue_run(job: str, options: Mapping[str, Any]) -> int:
    """
    Store the job that runs the pipeline job *job*, and return its id.

    Args:
        job: Its name.
        options: Of it; what is None is left to the default, which is None as well.

    Raises:
        SparkOptionError: No such job is declared here, it takes no such option, or the
            settings do not let it write there.
    """
    from django_pgqueue.spark.destinations import check_destinations
    from django_pgqueue.spark.job import find_job_for_queue

    declared = find_job_for_queue(job)
    given = declared.read_options(options)
    check_destinations(declared, given, get_settings().destinations)
    said = {name: given[name] for name in options if given[name] is not None}
    task = find_task(RUN_TASK)
    assert isinstance(task, Task)
    return int(task.delay(job, **said).id)
