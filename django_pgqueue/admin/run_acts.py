"""What people can do with runs of the pipeline: run again, and stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Confirm
from django_pgqueue.admin.log import log, tell, who
from django_pgqueue.admin.pipeline_queue import enqueue_run
from django_pgqueue.admin.run_permissions import may_run
from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.pipeline import runs as pipelines
from django_pgqueue.redaction.names import PLACEHOLDER
from django_pgqueue.tasks import database

PERMISSIONS = ("run_pipeline",)


def _run_again(
    page: ActingAdmin, request: HttpRequest, ids: Sequence[int], data: dict[str, Any]
) -> None:
    """Enqueue runs with the same options; of equal ones, one."""
    from django_pgqueue.spark.job import find_job_for_queue

    rows = page.rows_by_key(request, ids)
    asked: dict[str, int] = {}
    for row in rows.values():
        options = json.dumps(row.options, sort_keys=True)
        key = f"{row.job} {options}"
        if key in asked:
            continue
        if PLACEHOLDER in options:
            problem = _(
                "%(run)s was not asked for again: its options have a secret, which is "
                "not kept. Use Run… instead."
            )
            messages.error(request, problem % {"run": row})
            continue
        try:
            if not may_run(request, find_job_for_queue(row.job)):
                problem = _(
                    "%(run)s was not asked for again: it takes out rows that you may "
                    "not view."
                )
                messages.error(request, problem % {"run": row})
                continue
            options_given = row.options if isinstance(row.options, dict) else {}
            asked[key] = enqueue_run(row.job, options_given)
        except SparkOptionError as error:
            problem = _("%(run)s was not asked for again: %(error)s")
            messages.error(request, problem % {"run": row, "error": error})
            continue
        log(request, [row], _("Run again, by job %(job)s.") % {"job": asked[key]})
    if asked:
        tell(
            request,
            (
                len(asked),
                ngettext(
                    "%(count)d run was asked for: job %(jobs)s.",
                    "%(count)d runs were asked for: jobs %(jobs)s.",
                    len(asked),
                ).replace("%(jobs)s", ", ".join(map(str, asked.values()))),
            ),
        )


def _stop(
    page: ActingAdmin, request: HttpRequest, ids: Sequence[int], data: dict[str, Any]
) -> None:
    """Ask live runs to stop."""
    rows = page.rows_by_key(request, ids)
    asked, dead = [], 0
    with database.cursor() as cursor:
        for row in rows.values():
            if row.cancel_requested_at is not None:
                continue
            found = pipelines.request_stop(cursor, row.job, by=who(request), run=row.pk)
            if found is None:
                continue
            asked.append(row)
            dead += found[1]
    log(request, asked, _("Asked to stop."))
    left = len(ids) - len(asked)
    tell(
        request,
        (
            len(asked) - dead,
            ngettext(
                "%(count)d run was asked to stop; it does so within seconds.",
                "%(count)d runs were asked to stop; they do so within seconds.",
                len(asked) - dead,
            ),
        ),
        (
            dead,
            ngettext(
                "%(count)d is lost: its process has died.",
                "%(count)d are lost: their processes have died.",
                dead,
            ),
        ),
        (
            left,
            ngettext(
                "%(count)d has ended, or was asked already.",
                "%(count)d have ended, or were asked already.",
                left,
            ),
        ),
        left=left + dead,
    )


RUN_AGAIN = Act(
    name="run-again",
    permissions=PERMISSIONS,
    label=gettext_lazy("Run again"),
    help=gettext_lazy("Enqueues a run with the same options."),
    do=_run_again,
    form=Confirm,
    warning=gettext_lazy(
        "A job of the queue runs it with the same options, as soon as no other run of "
        "the same pipeline job is live."
    ),
    offered=lambda row: row.shown_state != "running",
)

STOP = Act(
    name="stop",
    permissions=PERMISSIONS,
    label=gettext_lazy("Stop"),
    help=gettext_lazy("Asks it to end; it writes no more results."),
    do=_stop,
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
