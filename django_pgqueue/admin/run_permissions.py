"""
Run permissions: who may run a pipeline job.

A run of one that takes rows out, to files or to wherever the project writes, shows them
to whoever reads there. So it needs the permissions with which a page would show them,
besides that to run pipeline jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from django_pgqueue.admin.acts import may
from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.models import PipelineRun

if TYPE_CHECKING:
    from django_pgqueue.spark.job import PipelineJob

# The task that runs them: its module is imported when the app is ready.
RUN_TASK = "django_pgqueue.run_pipeline"

RUN = "run_pipeline"
PAYLOAD = "view_payload"

VIEWS = {
    "jobs": "view_job",
    "archive": "view_archivedjob",
    "dead_letters": "view_deadletter",
    "log": "view_message",
}


def permissions_of(job: PipelineJob) -> tuple[str, ...]:
    """Return the codenames that a user needs, all of them, to run *job*."""
    tables = VIEWS if job.takes_out is None else job.takes_out
    if not tables:
        return (RUN,)
    return (RUN, PAYLOAD, *(VIEWS[table] for table in tables))


def may_run(request: HttpRequest, job: PipelineJob) -> bool:
    """Return whether the user may run *job*."""
    return may(request, *permissions_of(job))


def may_call(
    request: HttpRequest, task: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether the user may let *task* run so, if it is that of the pipeline."""
    if task != RUN_TASK:
        return True
    from django_pgqueue.spark.job import find_job_for_queue

    name = args[0] if args else kwargs.get("job")
    try:
        return may_run(request, find_job_for_queue(str(name)))
    except SparkOptionError:
        # It is rejected when it runs; until then, somebody may declare it.
        return may(request, RUN, PAYLOAD, *VIEWS.values())


def run_url(site: AdminSite, request: HttpRequest, job: str) -> str | None:
    """Return the form that runs *job*; None for those who may not, or have no page."""
    if not site.is_registered(PipelineRun):
        return None
    if not may(request, "view_pipelinerun", RUN):
        return None
    there = reverse("admin:pgqueue_pipelinerun_run", current_app=site.name)
    return f"{there}?{urlencode({'job': job})}"
