"""
What people can do with jobs: retry now, cancel.

The rows move by tasks/operate.py. The log entries are written inside the same
transaction: where they are in another database, an action without its entry is
impossible, while an entry of an action that failed at its commit is not.
"""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin.acts import Act, Confirm
from django_pgqueue.admin.row_acts import Data, Outcome, on_all
from django_pgqueue.models.job import LiveState
from django_pgqueue.tasks import operate

# The states in which a job waits for a time, which "retry now" can bring forward.
WAITING = (LiveState.SCHEDULED, LiveState.RETRYING)


def _cancel(rows: dict[int, Any], by: str, data: Data) -> list[list[int]]:
    answer = operate.cancel(list(rows), by=by)
    return [answer.cancelled, answer.requested]


RETRY = Act(
    name="retry",
    permissions=("retry",),
    label=gettext_lazy("Retry now"),
    help=gettext_lazy("Make it due at once, instead of waiting for its time."),
    do=on_all(
        lambda rows, by, data: [operate.retry(rows)],
        Outcome(
            ngettext_lazy(
                "%(count)d job is due now.", "%(count)d jobs are due now.", "count"
            ),
            lambda data, row: _("Made due at once."),
        ),
        left=ngettext_lazy(
            "%(count)d was not waiting for a time: due, running, parked or ended.",
            "%(count)d were not waiting for a time: due, running, parked or ended.",
            "count",
        ),
    ),
    offered=lambda row: row.state in WAITING,
)

CANCEL = Act(
    name="cancel",
    permissions=("cancel",),
    label=gettext_lazy("Cancel"),
    help=gettext_lazy("What waits never runs; what runs is asked to stop."),
    do=on_all(
        _cancel,
        Outcome(
            ngettext_lazy(
                "%(count)d job was cancelled.",
                "%(count)d jobs were cancelled.",
                "count",
            ),
            lambda data, row: _("Cancelled."),
        ),
        Outcome(
            ngettext_lazy(
                "%(count)d is running and was asked to stop.",
                "%(count)d are running and were asked to stop.",
                "count",
            ),
            lambda data, row: _("Asked to stop."),
        ),
        left=ngettext_lazy(
            "%(count)d had ended, or is being moved just now.",
            "%(count)d had ended, or are being moved just now.",
            "count",
        ),
    ),
    form=Confirm,
    warning=gettext_lazy(
        "A job that waits goes to the archive as cancelled, and never runs. A job that "
        "runs is asked to stop: its task ends by itself where it looks at "
        "context.cancelled, or at its next await."
    ),
    offered=lambda row: row.cancel_requested_at is None,
    is_grave=True,
)
