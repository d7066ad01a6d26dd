"""
Nightly: what the post office does by itself.

The digest of a day goes out the next morning: how many mails were sent, and which were
given up and why. Which day it is about follows from the tick, so a digest that runs
late, or again after a failure, is about the same one.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import Count

from django_pgqueue import cron, task
from django_pgqueue.tasks.context import JobContext
from postoffice.acceptance import accept
from postoffice.drafts import Draft
from postoffice.models import EmailMessage, Status

ZONE = "Europe/Berlin"
ERRORS_SHOWN = 20


# After an outage of days, the digests of up to a week are made up for, each by itself.
# atomic: the mail is accepted with the ack of this job, so there is one for each day.
@cron("0 6 * * *", tz=ZONE, catch_up="all(7)", overlap="queue")
@task(queue="digests", atomic=True, takes_context=True)
def digest(ctx: JobContext) -> str:
    """Accept a mail to the postmaster about the day before the tick; return its day."""
    zone = ZoneInfo(ZONE)
    tick = ctx.tick or datetime.now(zone)
    day = tick.astimezone(zone).date() - timedelta(days=1)
    draft = Draft(
        subject=f"Post office on {day:%A, %d %B %Y}",
        to=settings.POSTMASTERS,
        cc=[],
        bcc=[],
        body=written(day, zone),
    )
    accept([draft])
    return day.isoformat()


def written(day: date, zone: ZoneInfo) -> str:
    """Return the text of the digest of *day*."""
    begin = datetime.combine(day, time(), zone)
    end = datetime.combine(day + timedelta(days=1), time(), zone)
    mails = EmailMessage.objects.filter(updated_at__gte=begin, updated_at__lt=end)
    counted = {
        row["status"]: row["mails"]
        for row in mails.values("status").annotate(mails=Count("id"))
    }
    lines = [
        f"{counted.get(status, 0):>9,} {status.label.lower()}" for status in Status
    ]
    errors = (
        mails.filter(status=Status.ERROR)
        .values("error")
        .annotate(mails=Count("id"))
        .order_by("-mails", "error")[:ERRORS_SHOWN]
    )
    if errors:
        lines += ["", "Given up:"]
        lines += [f"{row['mails']:>9,} {row['error']}" for row in errors]
    return "\n".join([*lines, ""])
