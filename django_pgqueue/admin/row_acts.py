"""
Row acts: what is done with each row by itself, and told of all together.

An act is data here: what it does with a row, and what is said of it. Pause and resume
are the same for whatever has paused_at, paused_by and pause_reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.models import CHANGE
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Do
from django_pgqueue.admin.log import log, tell, who
from django_pgqueue.tasks.operate import REASON_CHARACTERS_MAX

if TYPE_CHECKING:
    from django_pgqueue.admin.log import Counted

Data = dict[str, Any]
Text = str | Promise


class ReasonForm(forms.Form):
    """Why; kept with what is done."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=REASON_CHARACTERS_MAX,
        widget=forms.TextInput,
        help_text=gettext_lazy("For whoever looks at this later."),
    )


def on_each(
    act: Callable[[Any, str, Data], bool],
    *,
    done: Counted,
    left: Counted,
    entry: Callable[[Any, Data], str],
    order: str = "pk",
    flag: int = CHANGE,
) -> Do:
    """
    Return what does *act* with each row, logs it and tells how many there were.

    Args:
        act: The row, who does it, what the form asked for; False: nothing was done.
        done: Says of how many rows it was done, with %(count)d.
        left: The same of those that were left as they were.
        entry: The entry of Django's log for a row.
        order: The attribute by which rows are taken: one order, so that two who act on
            several do not deadlock.
        flag: ADDITION, CHANGE or DELETION of Django's log.
    """

    def do(
        page: ActingAdmin, request: HttpRequest, keys: Sequence[Any], data: Data
    ) -> None:
        by = who(request)
        rows = page.rows_by_key(request, keys).values()
        entries: dict[str, list[Any]] = {}
        for row in sorted(rows, key=lambda row: getattr(row, order)):
            if act(row, by, data):
                entries.setdefault(entry(row, data), []).append(row)
        for text, changed in entries.items():
            log(request, changed, text, flag=flag)
        count = sum(map(len, entries.values()))
        rest = len(keys) - count
        tell(request, (count, done), (rest, left), left=rest)

    return do


def pausing(
    pause: Callable[[Any, str, Data], bool],
    resume: Callable[[Any], bool],
    *,
    paused: Counted,
    resumed: Counted,
    pause_help: Text,
    pause_warning: Text,
    resume_help: Text,
    order: str = "pk",
) -> tuple[Act, Act]:
    """
    Return the acts that pause and resume rows of a kind.

    Args:
        pause: As on_each() takes it; the form asks for the reason.
        resume: The row; False: it was not paused.
        paused: Says how many are paused, with %(count)d.
        resumed: The same of those that are resumed.
        pause_help: Beside the button.
        pause_warning: Above the form.
        resume_help: Beside the button.
        order: As on_each() takes it.
    """
    return (
        Act(
            name="pause",
            permissions=("pause",),
            label=gettext_lazy("Pause"),
            help=pause_help,
            do=on_each(
                pause,
                done=paused,
                left=ngettext_lazy(
                    "%(count)d was paused already; its reason stays.",
                    "%(count)d were paused already; their reasons stay.",
                    "count",
                ),
                entry=lambda row, data: _("Paused: %(reason)s") % data,
                order=order,
            ),
            form=ReasonForm,
            warning=pause_warning,
            offered=lambda row: row.paused_at is None,
        ),
        Act(
            name="resume",
            permissions=("pause",),
            label=gettext_lazy("Resume"),
            help=resume_help,
            do=on_each(
                lambda row, by, data: resume(row),
                done=resumed,
                left=ngettext_lazy(
                    "%(count)d was not paused.", "%(count)d were not paused.", "count"
                ),
                entry=lambda row, data: (
                    _("Resumed; it was paused by %(by)s: %(reason)s")
                    % {"by": row.paused_by or "?", "reason": row.pause_reason or "?"}
                ),
                order=order,
            ),
            offered=lambda row: row.paused_at is not None,
        ),
    )
