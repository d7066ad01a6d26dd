"""What people can do with schedules: run now, pause, resume, reset, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.admin.models import DELETION
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Confirm
from django_pgqueue.admin.log import log, tell, who
from django_pgqueue.admin.row_acts import on_each, pausing
from django_pgqueue.schedules import operate

Data = dict[str, Any]


def _run_now(
    page: ActingAdmin, request: HttpRequest, keys: Sequence[int], data: Data
) -> None:
    """Enqueue the jobs of schedules, publish their messages, and name them."""
    rows = page.rows_by_key(request, keys)
    jobs: list[int] = []
    published: list[int] = []
    held = 0
    for row in rows.values():
        issued = operate.run_now(row.name, by=who(request))
        if issued is None:
            continue
        if issued.message_id is not None:
            published.append(issued.message_id)
            told = _("Run now: message %(message)s.") % {"message": issued.message_id}
            log(request, [row], told)
        elif issued.job_id is None:
            held += 1
        else:
            jobs.append(issued.job_id)
            log(request, [row], _("Run now: job %(job)s.") % {"job": issued.job_id})
    tell(
        request,
        (
            len(jobs),
            ngettext(
                "%(count)d job was enqueued: %(jobs)s.",
                "%(count)d jobs were enqueued: %(jobs)s.",
                len(jobs),
            ).replace("%(jobs)s", ", ".join(map(str, jobs)) or "-"),
        ),
        (
            len(published),
            ngettext(
                "%(count)d message was published: %(messages)s.",
                "%(count)d messages were published: %(messages)s.",
                len(published),
            ).replace("%(messages)s", ", ".join(map(str, published)) or "-"),
        ),
        (
            held,
            ngettext(
                "%(count)d was not: another job has the dedup key of its task.",
                "%(count)d were not: other jobs have the dedup keys of their tasks.",
                held,
            ),
        ),
        _left(len(keys) - len(jobs) - len(published) - held),
        left=len(keys) - len(jobs) - len(published),
    )


def _left(count: int) -> tuple[int, str]:
    return (
        count,
        ngettext("%(count)d has gone.", "%(count)d have gone.", count),
    )


RUN_NOW = Act(
    name="run-now",
    permissions=("run_schedule",),
    label=gettext_lazy("Run now"),
    help=gettext_lazy("Does once what its ticks do; those go on as they were."),
    do=_run_now,
    form=Confirm,
    warning=gettext_lazy(
        "Its job is enqueued, or its message published, now, also while it is paused "
        "or an earlier job runs. Its ticks go on as they were."
    ),
)

PAUSE, RESUME = pausing(
    lambda row, by, data: operate.pause(row.name, by=by, reason=data["reason"]),
    lambda row: operate.resume(row.name),
    paused=ngettext_lazy(
        "%(count)d schedule is paused; jobs that it has enqueued go on.",
        "%(count)d schedules are paused; jobs that they have enqueued go on.",
        "count",
    ),
    resumed=ngettext_lazy(
        "%(count)d schedule has ticks again, from now on.",
        "%(count)d schedules have ticks again, from now on.",
        "count",
    ),
    pause_help=gettext_lazy("It has no ticks until it is resumed."),
    pause_warning=gettext_lazy(
        "It has no ticks until it is resumed, and those that are left out are not made "
        "up for. Jobs that it has enqueued go on."
    ),
    resume_help=gettext_lazy("It has ticks again, from now on."),
    order="name",
)

RESET = Act(
    name="reset",
    permissions=("change_schedule",),
    label=gettext_lazy("Reset to code"),
    help=gettext_lazy("Takes back what was changed here."),
    do=on_each(
        lambda row, by, data: operate.reset(row.name),
        done=ngettext_lazy(
            "%(count)d schedule is as code declares it.",
            "%(count)d schedules are as code declares them.",
            "count",
        ),
        left=ngettext_lazy(
            "%(count)d was not changed here.",
            "%(count)d were not changed here.",
            "count",
        ),
        entry=lambda data, row: _("Reset to code."),
        order="name",
    ),
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
    do=on_each(
        lambda row, by, data: operate.delete(row.name),
        done=ngettext_lazy(
            "%(count)d schedule was deleted.",
            "%(count)d schedules were deleted.",
            "count",
        ),
        left=ngettext_lazy(
            "%(count)d stays: code declares it. Pause it instead.",
            "%(count)d stay: code declares them. Pause them instead.",
            "count",
        ),
        entry=lambda data, row: _("Deleted."),
        order="name",
        flag=DELETION,
    ),
    form=Confirm,
    warning=gettext_lazy(
        "It is deleted for good, with the list of its ticks. Jobs that it has enqueued "
        "go on. What code declares stays."
    ),
    offered=lambda row: row.source == "user" or row.withdrawn_at is not None,
    is_grave=True,
)
