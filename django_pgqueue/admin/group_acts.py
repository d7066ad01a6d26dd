"""What people can do with consumer groups, but for seek: pause, resume, read on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Confirm
from django_pgqueue.admin.log import log, tell
from django_pgqueue.admin.row_acts import pausing
from django_pgqueue.exceptions import MessagesLost
from django_pgqueue.topics import operate_groups as operate

Data = dict[str, Any]


def _read_on(
    page: ActingAdmin, request: HttpRequest, keys: Sequence[int], data: Data
) -> None:
    """Let the halted partitions of groups be read again."""
    count = left = 0
    for row in page.rows_by_key(request, sorted(keys)).values():
        try:
            done = operate.read_on(row)
        except MessagesLost as error:
            # In English, as every error: it says what was lost, and the ways out.
            messages.error(request, f"{row}: {error}")
            continue
        if not done:
            left += 1
            continue
        count += len(done)
        told = ", ".join(map(str, done))
        log(request, [row], _("Halted partitions read on: %s") % told)
    if count or left:
        tell(
            request,
            (
                count,
                ngettext(
                    "%(count)d halted partition is read on, with all attempts.",
                    "%(count)d halted partitions are read on, with all attempts.",
                    count,
                ),
            ),
            (
                left,
                ngettext(
                    "%(count)d group had none.", "%(count)d groups had none.", left
                ),
            ),
            left=left,
        )


PAUSE, RESUME = pausing(
    lambda row, by, data: operate.pause(row, by=by, reason=data["reason"]),
    operate.resume,
    paused=ngettext_lazy(
        "%(count)d group is paused; what is being read is finished.",
        "%(count)d groups are paused; what is being read is finished.",
        "count",
    ),
    resumed=ngettext_lazy(
        "%(count)d group reads on, from where it was.",
        "%(count)d groups read on, from where they were.",
        "count",
    ),
    pause_help=gettext_lazy("Nobody reads for it until it is resumed."),
    pause_warning=gettext_lazy(
        "Nobody reads for it until it is resumed; what is being read is finished. It "
        "reads on from where it was, as long as retention has not removed that."
    ),
    resume_help=gettext_lazy("It reads on, at once, from where it was."),
)

READ_ON = Act(
    name="read-on",
    permissions=("pause",),
    label=gettext_lazy("Read halted partitions on"),
    help=gettext_lazy("From the message that they were halted at, with all attempts."),
    do=_read_on,
    form=Confirm,
    warning=gettext_lazy(
        "Its halted partitions are read again, from the message that they were halted "
        "at. Without a change of the code or the data, they are likely to halt again. "
        "To leave that message out, seek past it."
    ),
    # In a list it is not known, so it is offered there; lags are those of the page.
    offered=lambda row: any(each.halted_at is not None for each in row.lags),
)
