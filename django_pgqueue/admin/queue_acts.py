"""What people can do with queues: pause and resume."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act
from django_pgqueue.admin.letter_acts import ReasonForm
from django_pgqueue.admin.log import log, tell, who
from django_pgqueue.tasks import operate


def _pause(
    page: ActingAdmin, request: HttpRequest, names: Sequence[str], data: dict[str, Any]
) -> None:
    """Pause queues, with who and why."""
    rows = page.rows_by_key(request, names)
    reason = data["reason"]
    done = [
        name for name in rows if operate.pause(name, by=who(request), reason=reason)
    ]
    text = _("Paused: %(reason)s") % {"reason": reason}
    log(request, [rows[name] for name in done], text)
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d queue is paused; running jobs go on.",
                "%(count)d queues are paused; running jobs go on.",
                len(done),
            ),
        ),
        (
            len(names) - len(done),
            ngettext(
                "%(count)d was paused already; its reason stays.",
                "%(count)d were paused already; their reasons stay.",
                len(names) - len(done),
            ),
        ),
        left=len(names) - len(done),
    )


def _resume(
    page: ActingAdmin, request: HttpRequest, names: Sequence[str], data: dict[str, Any]
) -> None:
    """Resume queues."""
    rows = page.rows_by_key(request, names)
    done = [name for name in rows if operate.resume(name)]
    for name in done:
        before = _("Resumed; it was paused by %(by)s: %(reason)s") % {
            "by": rows[name].paused_by or "?",
            "reason": rows[name].pause_reason or "?",
        }
        log(request, [rows[name]], before)
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d queue is open again.",
                "%(count)d queues are open again.",
                len(done),
            ),
        ),
        (
            len(names) - len(done),
            ngettext(
                "%(count)d was not paused.",
                "%(count)d were not paused.",
                len(names) - len(done),
            ),
        ),
        left=len(names) - len(done),
    )


PAUSE = Act(
    name="pause",
    permissions=("pause",),
    label=gettext_lazy("Pause"),
    help=gettext_lazy("Workers take no jobs from it; those that run go on."),
    do=_pause,
    form=ReasonForm,
    warning=gettext_lazy(
        "Workers take no more jobs from it until it is resumed. What runs goes on, and "
        "jobs can still be enqueued."
    ),
    offered=lambda row: row.paused_at is None,
)

RESUME = Act(
    name="resume",
    permissions=("pause",),
    label=gettext_lazy("Resume"),
    help=gettext_lazy("Workers take jobs from it again, at once."),
    do=_resume,
    offered=lambda row: row.paused_at is not None,
)
