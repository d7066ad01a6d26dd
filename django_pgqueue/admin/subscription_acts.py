"""What people can do with subscriptions: disable, enable, delete."""

from __future__ import annotations

from django.contrib.admin.models import DELETION
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin.acts import Act, Confirm
from django_pgqueue.admin.row_acts import ReasonForm, on_each
from django_pgqueue.topics import operate_subscriptions as operate

DISABLE = Act(
    name="disable",
    permissions=("pause",),
    label=gettext_lazy("Disable"),
    help=gettext_lazy("Messages make no jobs of it until it is enabled."),
    do=on_each(
        lambda row, by, data: operate.disable(row.pk, by=by, reason=data["reason"]),
        done=ngettext_lazy(
            "%(count)d subscription makes no more jobs; those that are there stay.",
            "%(count)d subscriptions make no more jobs; those that are there stay.",
            "count",
        ),
        left=ngettext_lazy(
            "%(count)d was disabled already; its reason stays.",
            "%(count)d were disabled already; their reasons stay.",
            "count",
        ),
        entry=lambda data, row: _("Disabled: %(reason)s") % data,
    ),
    form=ReasonForm,
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
    do=on_each(
        lambda row, by, data: operate.enable(row.pk),
        done=ngettext_lazy(
            "%(count)d subscription makes jobs again, of what is published now.",
            "%(count)d subscriptions make jobs again, of what is published now.",
            "count",
        ),
        left=ngettext_lazy(
            "%(count)d was not disabled.", "%(count)d were not disabled.", "count"
        ),
        entry=lambda data, row: (
            _("Enabled; it was disabled by %(by)s: %(reason)s")
            % {"by": row.disabled_by or "?", "reason": row.disabled_reason or "?"}
        ),
    ),
    offered=lambda row: row.disabled_at is not None,
)

# Not "delete": that is the form of Django's, which is closed.
DELETE = Act(
    name="remove",
    permissions=("purge",),
    label=gettext_lazy("Delete"),
    help=gettext_lazy("For good. What code declares stays."),
    do=on_each(
        lambda row, by, data: operate.delete(row.pk),
        done=ngettext_lazy(
            "%(count)d subscription was deleted.",
            "%(count)d subscriptions were deleted.",
            "count",
        ),
        left=ngettext_lazy(
            "%(count)d stays: code has declared it lately. Disable it instead.",
            "%(count)d stay: code has declared them lately. Disable them instead.",
            "count",
        ),
        entry=lambda data, row: _("Deleted."),
        flag=DELETION,
    ),
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
