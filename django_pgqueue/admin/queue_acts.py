"""What people can do with queues: pause and resume."""

from __future__ import annotations

from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin.row_acts import pausing
from django_pgqueue.tasks import operate

PAUSE, RESUME = pausing(
    lambda row, by, data: operate.pause(row.name, by=by, reason=data["reason"]),
    lambda row: operate.resume(row.name),
    paused=ngettext_lazy(
        "%(count)d queue is paused; running jobs go on.",
        "%(count)d queues are paused; running jobs go on.",
        "count",
    ),
    resumed=ngettext_lazy(
        "%(count)d queue is open again.", "%(count)d queues are open again.", "count"
    ),
    pause_help=gettext_lazy("Workers take no jobs from it; those that run go on."),
    pause_warning=gettext_lazy(
        "Workers take no more jobs from it until it is resumed. What runs goes on, and "
        "jobs can still be enqueued."
    ),
    resume_help=gettext_lazy("Workers take jobs from it again, at once."),
)
