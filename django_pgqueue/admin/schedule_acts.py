"""What people can do with schedules: run now, pause, resume, reset, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib.admin.models import DELETION
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Confirm
from django_pgqueue.admin.letter_acts import ReasonForm
from django_pgqueue.admin.log import log, tell, who
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


def _pause(
    page: ActingAdmin, request: HttpRequest, keys: Sequence[int], data: Data
) -> None:
    """Pause schedules, with who and why."""
    reason, by = data["reason"], who(request)
    done = _each(
        page, request, keys, lambda name: operate.pause(name, by=by, reason=reason)
    )
    log(request, done, _("Paused: %(reason)s") % {"reason": reason})
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d schedule is paused; jobs that it has enqueued go on.",
                "%(count)d schedules are paused; jobs that they have enqueued go on.",
                len(done),
            ),
        ),
        (
            len(keys) - len(done),
            ngettext(
                "%(count)d was paused already; its reason stays.",
                "%(count)d were paused already; their reasons stay.",
                len(keys) - len(done),
            ),
        ),
        left=len(keys) - len(done),
    )


def _resume(
    page: ActingAdmin, request: HttpRequest, keys: Sequence[int], data: Data
) -> None:
    """Resume schedules."""
    done = _each(page, request, keys, operate.resume)
    for row in done:
        before = _("Resumed; it was paused by %(by)s: %(reason)s") % {
            "by": row.paused_by or "?",
            "reason": row.pause_reason or "?",
        }
        log(request, [row], before)
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d schedule has ticks again, from now on.",
                "%(count)d schedules have ticks again, from now on.",
                len(done),
            ),
        ),
        (
            len(keys) - len(done),
            ngettext(
                "%(count)d was not paused.",
                "%(count)d were not paused.",
                len(keys) - len(done),
            ),
        ),
        left=len(keys) - len(done),
    )


def _reset(
    page: ActingAdmin, request: HttpRequest, keys: Sequence[int], data: Data
) -> None:
    """Let schedules be as code declares them."""
    done = _each(page, request, keys, operate.reset)
    log(request, done, _("Reset to code."))
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d schedule is as code declares it.",
                "%(count)d schedules are as code declares them.",
                len(done),
            ),
        ),
        (
            len(keys) - len(done),
            ngettext(
                "%(count)d was not changed here.",
                "%(count)d were not changed here.",
                len(keys) - len(done),
            ),
        ),
        left=len(keys) - len(done),
    )


def _delete(
    page: ActingAdmin, request: HttpRequest, keys: Sequence[int], data: Data
) -> None:
    """Delete schedules that no code declares."""
    done = _each(page, request, keys, operate.delete)
    log(request, done, _("Deleted."), flag=DELETION)
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d schedule was deleted.",
                "%(count)d schedules were deleted.",
                len(done),
            ),
        ),
        (
            len(keys) - len(done),
            ngettext(
                "%(count)d stays: code declares it. Pause it instead.",
                "%(count)d stay: code declares them. Pause them instead.",
                len(keys) - len(done),
            ),
        ),
        left=len(keys) - len(done),
    )


def _each(
    page: ActingAdmin,
    request: HttpRequest,
    keys: Sequence[int],
    act: Callable[[str], bool],
) -> list[Any]:
    """Do *act* by the names of schedules; return the rows that it was done to."""
    # In one order, so that two who act on several do not deadlock.
    rows = sorted(page.rows_by_key(request, keys).values(), key=lambda row: row.name)
    return [row for row in rows if act(row.name)]


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

PAUSE = Act(
    name="pause",
    permissions=("pause",),
    label=gettext_lazy("Pause"),
    help=gettext_lazy("It has no ticks until it is resumed."),
    do=_pause,
    form=ReasonForm,
    warning=gettext_lazy(
        "It has no ticks until it is resumed, and those that are left out are not made "
        "up for. Jobs that it has enqueued go on."
    ),
    offered=lambda row: row.paused_at is None,
)

RESUME = Act(
    name="resume",
    permissions=("pause",),
    label=gettext_lazy("Resume"),
    help=gettext_lazy("It has ticks again, from now on."),
    do=_resume,
    offered=lambda row: row.paused_at is not None,
)

RESET = Act(
    name="reset",
    permissions=("change_schedule",),
    label=gettext_lazy("Reset to code"),
    help=gettext_lazy("Takes back what was changed here."),
    do=_reset,
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
    do=_delete,
    form=Confirm,
    warning=gettext_lazy(
        "It is deleted for good, with the list of its ticks. Jobs that it has enqueued "
        "go on. What code declares stays."
    ),
    offered=lambda row: row.source == "user" or row.withdrawn_at is not None,
    is_grave=True,
)
