"""What people can do with schedules, besides pausing them: run, reset, delete."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import DELETION
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin.acts import Act, Confirm, Outcome, Work, on_each
from django_pgqueue.schedules import operate


def _run_now(work: Work) -> list[Any]:
    """Enqueue the jobs of schedules, publish their messages."""
    jobs: dict[int, list[int]] = {}
    published: dict[int, list[int]] = {}
    held = []
    for key, row in work.rows.items():
        issued = operate.run_now(row.name, by=work.by)
        if issued is None:
            continue
        if issued.message_id is not None:
            published[key] = [issued.message_id]
        elif issued.job_id is not None:
            jobs[key] = [issued.job_id]
        else:
            held.append(key)
    return [jobs, published, held]


RUN_NOW = Act(
    name="run-now",
    permissions=("run_schedule",),
    label=gettext_lazy("Run now"),
    help=gettext_lazy("Does once what its ticks do; those go on as they were."),
    run=_run_now,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d job was enqueued: %(names)s.",
                "%(count)d jobs were enqueued: %(names)s.",
                "count",
            ),
            gettext_lazy("Run now: job %(names)s."),
        ),
        Outcome(
            ngettext_lazy(
                "%(count)d message was published: %(names)s.",
                "%(count)d messages were published: %(names)s.",
                "count",
            ),
            gettext_lazy("Run now: message %(names)s."),
        ),
        Outcome(
            ngettext_lazy(
                "%(count)d was not: another job has the dedup key of its task.",
                "%(count)d were not: other jobs have the dedup keys of their tasks.",
                "count",
            ),
            is_left=True,
        ),
    ],
    left=ngettext_lazy("%(count)d has gone.", "%(count)d have gone.", "count"),
    form=Confirm,
    warning=gettext_lazy(
        "Its job is enqueued, or its message published, now, also while it is paused "
        "or an earlier job runs. Its ticks go on as they were."
    ),
)

RESET = Act(
    name="reset",
    permissions=("change_schedule",),
    label=gettext_lazy("Reset to code"),
    help=gettext_lazy("Takes back what was changed here."),
    run=on_each(lambda row, work: operate.reset(row.name)),
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d schedule is as code declares it.",
                "%(count)d schedules are as code declares them.",
                "count",
            ),
            gettext_lazy("Reset to code."),
        )
    ],
    left=ngettext_lazy(
        "%(count)d was not changed here.",
        "%(count)d were not changed here.",
        "count",
    ),
    order="name",
    form=Confirm,
    warning=gettext_lazy(
        "What was changed here is taken back: all is as code declares it. Ticks that "
        "another timetable would have had are not made up for."
    ),
    offered=lambda row: row.overridden_at is not None,
)

# Not "delete": that is the form of Django's, which is closed.
DELETE = Act(
    name="remove",
    permissions=("delete_schedule",),
    label=gettext_lazy("Delete"),
    help=gettext_lazy("For good, with the list of its ticks."),
    run=on_each(lambda row, work: operate.delete(row.name)),
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d schedule was deleted.",
                "%(count)d schedules were deleted.",
                "count",
            ),
            gettext_lazy("Deleted."),
            DELETION,
        )
    ],
    left=ngettext_lazy(
        "%(count)d stays: code declares it. Pause it instead.",
        "%(count)d stay: code declares them. Pause them instead.",
        "count",
    ),
    order="name",
    form=Confirm,
    warning=gettext_lazy(
        "It is deleted for good, with the list of its ticks. Jobs that it has enqueued "
        "go on. What code declares stays."
    ),
    offered=lambda row: row.source == "user" or row.withdrawn_at is not None,
    is_grave=True,
)
