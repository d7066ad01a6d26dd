"""
What people can do with jobs: retry now, cancel.

The rows move by tasks/operate.py. The log entries are written inside the same
transaction: where they are in another database, an action without its entry is
impossible, while an entry of an action that failed at its commit is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Confirm
from django_pgqueue.admin.log import log, tell, who
from django_pgqueue.models.job import LiveState
from django_pgqueue.tasks import operate

# The states in which a job waits for a time, which "retry now" can bring forward.
WAITING = (LiveState.SCHEDULED, LiveState.RETRYING)


def _retry(
    page: ActingAdmin, request: HttpRequest, ids: Sequence[int], data: dict[str, Any]
) -> None:
    """Make waiting jobs due, and tell the user how many were waiting."""
    rows = page.rows_by_key(request, ids)
    done = operate.retry(list(rows))
    log(request, [rows[id_] for id_ in done], _("Made due at once."))
    left = len(ids) - len(done)
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d job is due now.", "%(count)d jobs are due now.", len(done)
            ),
        ),
        (
            left,
            ngettext(
                "%(count)d was not waiting for a time: due, running, parked or ended.",
                "%(count)d were not waiting for a time: due, running, parked or ended.",
                left,
            ),
        ),
        left=left,
    )


def _cancel(
    page: ActingAdmin, request: HttpRequest, ids: Sequence[int], data: dict[str, Any]
) -> None:
    """Cancel jobs that wait, and ask those that run to stop."""
    rows = page.rows_by_key(request, ids)
    answer = operate.cancel(list(rows), by=who(request))
    log(request, [rows[id_] for id_ in answer.cancelled], _("Cancelled."))
    log(request, [rows[id_] for id_ in answer.requested], _("Asked to stop."))
    cancelled, requested = len(answer.cancelled), len(answer.requested)
    left = len(ids) - cancelled - requested
    tell(
        request,
        (
            cancelled,
            ngettext(
                "%(count)d job was cancelled.",
                "%(count)d jobs were cancelled.",
                cancelled,
            ),
        ),
        (
            requested,
            ngettext(
                "%(count)d is running and was asked to stop.",
                "%(count)d are running and were asked to stop.",
                requested,
            ),
        ),
        (
            left,
            ngettext(
                "%(count)d had ended, or is being moved just now.",
                "%(count)d had ended, or are being moved just now.",
                left,
            ),
        ),
        left=left,
    )


RETRY = Act(
    name="retry",
    permissions=("retry",),
    label=gettext_lazy("Retry now"),
    help=gettext_lazy("Make it due at once, instead of waiting for its time."),
    do=_retry,
    offered=lambda row: row.state in WAITING,
)

CANCEL = Act(
    name="cancel",
    permissions=("cancel",),
    label=gettext_lazy("Cancel"),
    help=gettext_lazy("What waits never runs; what runs is asked to stop."),
    do=_cancel,
    form=Confirm,
    warning=gettext_lazy(
        "A job that waits goes to the archive as cancelled, and never runs. A job that "
        "runs is asked to stop: its task ends by itself where it looks at "
        "context.cancelled, or at its next await."
    ),
    offered=lambda row: row.cancel_requested_at is None,
    is_grave=True,
)
