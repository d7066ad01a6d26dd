"""
Row acts: what is done with rows, and told of all together.

An act is data here: what it calls, what can become of rows, and what is said of that.
Pause and resume are the same for whatever has paused_at, paused_by and pause_reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.models import CHANGE
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Do
from django_pgqueue.admin.log import log_each, tell, who
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What can become of rows.

    Attributes:
        told: Says of how many it did, with %(count)d.
        entry: The entry of Django's log, of what the form asked for and a row.
        flag: ADDITION, CHANGE or DELETION of Django's log.
    """

    told: Counted
    entry: Callable[[Data, Any], str]
    flag: int = CHANGE


def on_all(
    act: Callable[[dict[Any, Any], str, Data], Sequence[Sequence[Any]]],
    *outcomes: Outcome,
    left: Counted,
) -> Do:
    """
    Return what does *act*, logs what became of rows and tells how many there were.

    Args:
        act: The rows by their keys, who does it, what the form asked for; returns the
            keys of the rows of each outcome.
        outcomes: What can become of rows.
        left: Says of how many rows nothing did, with %(count)d.
    """

    def do(
        page: ActingAdmin, request: HttpRequest, keys: Sequence[Any], data: Data
    ) -> None:
        rows = page.rows_by_key(request, keys)
        parts: list[tuple[int, Counted]] = []
        for outcome, done in zip(outcomes, act(rows, who(request), data), strict=True):
            entry = partial(outcome.entry, data)
            log_each(request, [rows[key] for key in done], entry, flag=outcome.flag)
            parts.append((len(done), outcome.told))
        rest = len(keys) - sum(count for count, _told in parts)
        tell(request, *parts, (rest, left), left=rest)

    return do


def on_each(
    act: Callable[[Any, str, Data], bool],
    *,
    done: Counted,
    left: Counted,
    entry: Callable[[Data, Any], str],
    order: str = "pk",
    flag: int = CHANGE,
) -> Do:
    """
    Return what does *act* with each row by itself, as on_all().

    Args:
        act: The row, who does it, what the form asked for; False: nothing was done.
        done: As an outcome has it; with *entry* and *flag* the only one.
        left: As on_all() takes it.
        entry: As an outcome has it.
        order: The attribute by which rows are taken: one order, so that two who act on
            several do not deadlock.
        flag: As an outcome has it.
    """

    def act_on(rows: dict[Any, Any], by: str, data: Data) -> list[list[Any]]:
        keys = sorted(rows, key=lambda key: getattr(rows[key], order))
        return [[key for key in keys if act(rows[key], by, data)]]

    return on_all(act_on, Outcome(done, entry, flag), left=left)


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
                entry=lambda data, row: _("Paused: %(reason)s") % data,
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
                entry=lambda data, row: (
                    _("Resumed; it was paused by %(by)s: %(reason)s")
                    % {"by": row.paused_by or "?", "reason": row.pause_reason or "?"}
                ),
                order=order,
            ),
            offered=lambda row: row.paused_at is not None,
        ),
    )
