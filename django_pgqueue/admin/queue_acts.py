"""What people can do with queues besides pausing: say how many jobs are claimed."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_pgqueue.admin.acts import Act, Outcome, Work
from django_pgqueue.bounds import LANE_BURST_MAX, LANE_CAPACITY_MAX
from django_pgqueue.exceptions import DeclarationError
from django_pgqueue.operators.pausable import PERMISSION
from django_pgqueue.operators.queue_limits import rate_text
from django_pgqueue.options.lanes import Rate
from django_pgqueue.tasks import operate_queues as operate

RATE_CHARACTERS_MAX = 30


class LimitForm(forms.Form):
    """How many jobs at a time, and in a time."""

    jobs = forms.IntegerField(
        label=gettext_lazy("Jobs at a time"),
        min_value=1,
        max_value=LANE_CAPACITY_MAX,
        required=False,
        help_text=gettext_lazy("Empty: what the settings say."),
    )
    rate = forms.CharField(
        label=gettext_lazy("Rate"),
        max_length=RATE_CHARACTERS_MAX,
        required=False,
        help_text=gettext_lazy("Such as 100/m. Empty: what the settings say."),
    )
    burst = forms.IntegerField(
        label=gettext_lazy("Burst"),
        min_value=1,
        max_value=LANE_BURST_MAX,
        required=False,
        help_text=gettext_lazy("Of the rate, how many may start at once. Empty: 1."),
    )

    def clean_rate(self) -> str:
        """Refuse what is no rate."""
        text = str(self.cleaned_data["rate"])
        if text:
            try:
                Rate(text)
            except DeclarationError as error:
                raise ValidationError(str(error)) from None
        return text

    def clean(self) -> None:
        """Refuse a burst of nothing."""
        super().clean()
        if self.cleaned_data.get("burst") and not self.data.get("rate"):
            self.add_error("burst", _("It needs a rate beside it."))


def _set_limit(work: Work) -> list[Any]:
    jobs, text = work.data["jobs"], work.data["rate"]
    rate = Rate(text, work.data["burst"] or 1) if text else None
    # What the log entry says.
    work.data["jobs"] = "-" if jobs is None else f"{jobs:,}"
    work.data["rate"] = "-" if rate is None else f"{text} ({rate.burst})"
    done = []
    for key, row in work.rows.items():
        if row.kind == "pull":
            problem = _("%(queue)s is a pull queue: no worker claims from it.")
            work.problems.append(problem % {"queue": row.name})
            continue
        is_done = operate.set_concurrency(row.name, jobs)
        if operate.set_rate(row.name, rate) or is_done:
            done.append(key)
    return [done]


def _said(row: Any) -> dict[str, Any]:
    has_rate = row.rate_spacing is not None
    return {
        "jobs": row.concurrency,
        "rate": rate_text(row.rate_spacing) if has_rate else "",
        "burst": row.rate_burst if has_rate else None,
    }


LIMIT = Act(
    name="limit",
    permissions=(PERMISSION,),
    label=gettext_lazy("Set limit"),
    help=gettext_lazy("So many jobs at a time and in a time, whatever settings say."),
    run=_set_limit,
    outcomes=[
        Outcome(
            ngettext_lazy(
                "%(count)d queue has another limit.",
                "%(count)d queues have another limit.",
                "count",
            ),
            gettext_lazy("Limit: at a time %(jobs)s, rate %(rate)s."),
        ),
    ],
    left=ngettext_lazy(
        "%(count)d had this limit already.",
        "%(count)d had this limit already.",
        "count",
    ),
    order="name",
    form=LimitForm,
    said=_said,
    offered=lambda row: row.kind != "pull",
    warning=gettext_lazy(
        "So many of its jobs are claimed, on all workers together, until somebody says "
        "otherwise. What runs goes on. Both limits are set: empty fields go back to "
        "what the settings say."
    ),
)
