"""The page: what was counted, by day and domain, and the totals beside it."""

from __future__ import annotations

from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from counters.models import MailCount, MailTotal

ROWS_MAX = 200


@require_safe
@never_cache
def mail_counts(request: HttpRequest) -> HttpResponse:
    """Show the latest days, domains with many mails first."""
    return render(
        request,
        "counters/mail_counts.html",
        {
            "rows": MailCount.objects.order_by("-day", "-sent", "domain")[:ROWS_MAX],
            "totals": totals(),
        },
    )


def totals() -> list[tuple[str, int, int]]:
    """Return for each kind of message what the jobs and what the group have counted."""
    by_jobs = MailCount.objects.aggregate(sent=Sum("sent"), failed=Sum("failed"))
    by_group = dict(MailTotal.objects.values_list("name", "mails"))
    return [
        (kind, by_jobs[kind] or 0, by_group.get(f"mail.{kind}", 0))
        for kind in ("sent", "failed")
    ]
