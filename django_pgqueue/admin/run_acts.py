"""What people can do with runs of the pipeline: run again, and stop."""

from __future__ import annotations

import json

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin.acts import Act, Confirm, Outcome, Work
from django_pgqueue.admin.pipeline_queue import enqueue_run
from django_pgqueue.admin.run_permissions import RUN, may_run
from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.redaction.names import PLACEHOLDER
from django_pgqueue.tasks import database


def _run_again(work: Work) -> list[dict[int, list[int]]]:
    """Enqueue runs with the same options; of equal ones, one."""
    from django_pgqueue.spark.job import find_job_for_queue

    found: dict[str, tuple[int, int]] = {}
    for key, row in work.rows.items():
        options = json.dumps(row.options, sort_keys=True)
        same = f"{row.job} {options}"
        if same in found:
            continue
        if PLACEHOLDER in options:
            problem = _(
                "%(run)s was not asked for again: its options have a secret, which is "
                "not kept. Use Run… instead."
            )
            work.problems.append(problem % {"run": row})
            continue
        try:
            if not may_run(work.request, find_job_for_queue(row.job)):
                problem = _(
                    "%(run)s was not asked for again: it takes out rows that you may "
                    "not view."
                )
                work.problems.append(problem % {"run": row})
                continue
            given = row.options if isinstance(row.options, dict) else {}
            found[same] = key, enqueue_run(row.job, given)
        except SparkOptionError as error:
            problem = _("%(run)s was not asked for again: %(error)s")
            work.problems.append(problem % {"run": row, "error": error})
    return [{key: [job] for key, job in found.values()}]


def _stop(work: Work) -> list[list[int]]:
    """Ask live runs to stop; those whose process has died are lost."""
    asked: list[int] = []
    lost: list[int] = []
    with database.cursor() as cursor:
        for key, row in work.rows.items():
            if row.cancel_requested_at is not None:
                continue
            found = pipelines.request_stop(cursor, row.job, by=work.by, run=key)
            if found is not None:
                (lost if found[1] else asked).append(key)
    return [asked, lost]


RUN_AGAIN = Act(
    name="run-again",
    permissions=(RUN,),
    label=gettext_lazy("Run again"),
    help=gettext_lazy("Enqueues a run with the same options."),
    run=_run_again,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d run was asked for: job %(names)s.",
                "%(count)d runs were asked for: jobs %(names)s.",
                "count",
            ),
            gettext_lazy("Run again, by job %(names)s."),
        )
    ],
    form=Confirm,
    warning=gettext_lazy(
        "A job of the queue runs it with the same options, as soon as no other run of "
        "the same pipeline job is live."
    ),
    offered=lambda row: row.shown_state != "running",
)

STOP = Act(
    name="stop",
    permissions=(RUN,),
    label=gettext_lazy("Stop"),
    help=gettext_lazy("Asks it to end; it writes no more results."),
    run=_stop,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d run was asked to stop; it does so within seconds.",
                "%(count)d runs were asked to stop; they do so within seconds.",
                "count",
            ),
            gettext_lazy("Asked to stop."),
        ),
        Outcome(
            ngettext_lazy(
                "%(count)d is lost: its process has died.",
                "%(count)d are lost: their processes have died.",
                "count",
            ),
            gettext_lazy("Asked to stop."),
            is_left=True,
        ),
    ],
    left=ngettext_lazy(
        "%(count)d has ended, or was asked already.",
        "%(count)d have ended, or were asked already.",
        "count",
    ),
    form=Confirm,
    warning=gettext_lazy(
        "It ends within seconds, as cancelled, and writes no more results. Files that "
        "Spark is writing are left as Spark leaves them."
    ),
    offered=lambda row: (
        row.shown_state == "running" and row.cancel_requested_at is None
    ),
    is_grave=True,
)
