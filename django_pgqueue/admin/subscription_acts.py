"""What people can do with subscriptions: disable, enable, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib.admin.models import DELETION
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.admin.acting import ActingAdmin
from django_pgqueue.admin.acts import Act, Confirm
from django_pgqueue.admin.log import log, tell, who
from django_pgqueue.subscriptions import operate
from django_pgqueue.tasks.operate import REASON_CHARACTERS_MAX

Data = dict[str, Any]


class ShortReasonForm(forms.Form):
    """Why; kept in the row."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=REASON_CHARACTERS_MAX,
        widget=forms.TextInput,
        help_text=gettext_lazy("For whoever looks at this later."),
    )


def _disable(
    page: ActingAdmin, request: HttpRequest, keys: Sequence[int], data: Data
) -> None:
    """Disable subscriptions, with who and why."""
    reason, by = data["reason"], who(request)
    rows = page.rows_by_key(request, sorted(keys))
    done = [
        row for key, row in rows.items() if operate.disable(key, by=by, reason=reason)
    ]
    log(request, done, _("Disabled: %(reason)s") % {"reason": reason})
    left = len(keys) - len(done)
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d subscription makes no more jobs; those that are there stay.",
                "%(count)d subscriptions make no more jobs; those that are there stay.",
                len(done),
            ),
        ),
        (
            left,
            ngettext(
                "%(count)d was disabled already; its reason stays.",
                "%(count)d were disabled already; their reasons stay.",
                left,
            ),
        ),
        left=left,
    )


def _enable(
    page: ActingAdmin, request: HttpRequest, keys: Sequence[int], data: Data
) -> None:
    """Enable subscriptions."""
    rows = page.rows_by_key(request, sorted(keys))
    done = [row for key, row in rows.items() if operate.enable(key)]
    for row in done:
        before = _("Enabled; it was disabled by %(by)s: %(reason)s") % {
            "by": row.disabled_by or "?",
            "reason": row.disabled_reason or "?",
        }
        log(request, [row], before)
    left = len(keys) - len(done)
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d subscription makes jobs again, of what is published now.",
                "%(count)d subscriptions make jobs again, of what is published now.",
                len(done),
            ),
        ),
        (
            left,
            ngettext(
                "%(count)d was not disabled.", "%(count)d were not disabled.", left
            ),
        ),
        left=left,
    )


def _delete(
    page: ActingAdmin, request: HttpRequest, keys: Sequence[int], data: Data
) -> None:
    """Delete subscriptions that no code declares."""
    rows = page.rows_by_key(request, sorted(keys))
    done = [row for key, row in rows.items() if operate.delete(key)]
    log(request, done, _("Deleted."), flag=DELETION)
    left = len(keys) - len(done)
    tell(
        request,
        (
            len(done),
            ngettext(
                "%(count)d subscription was deleted.",
                "%(count)d subscriptions were deleted.",
                len(done),
            ),
        ),
        (
            left,
            ngettext(
                "%(count)d stays: code has declared it lately. Disable it instead.",
                "%(count)d stay: code has declared them lately. Disable them instead.",
                left,
            ),
        ),
        left=left,
    )


DISABLE = Act(
    name="disable",
    permissions=("pause",),
    label=gettext_lazy("Disable"),
    help=gettext_lazy("Messages make no jobs of it until it is enabled."),
    do=_disable,
    form=ShortReasonForm,
    warning=gettext_lazy(
        "Messages that are published from now on make no job of it, and none is made "
        "up for when it is enabled again. Jobs that are there go on."
    ),
    offered=lambda row: row.disabled_at is None,
)

ENABLE = Act(
    name="enable",
    permissions=("pause",),
    label=gettext_lazy("Enable"),
    help=gettext_lazy("What is published from now on makes jobs again."),
    do=_enable,
    offered=lambda row: row.disabled_at is not None,
)

# Not "delete": that is the form of Django's, which is closed.
DELETE = Act(
    name="remove",
    permissions=("purge",),
    label=gettext_lazy("Delete"),
    help=gettext_lazy("For good. What code declares stays."),
    do=_delete,
    form=Confirm,
    warning=gettext_lazy(
        "It is deleted for good. Jobs that it has made go on. What code has declared "
        "within a week stays."
    ),
    offered=lambda row: (
        row.source == "user" or row.is_stale or row.disabled_at is not None
    ),
    is_grave=True,
)
