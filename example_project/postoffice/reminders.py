"""
Reminders: a mail to everybody who had some, each at a minute of the day that is theirs.

At once, a hundred thousand mails would keep every receipt waiting. Here each address
has a moment of the next 24 hours, which follows from the address alone: tomorrow's run
comes to the same one. It takes one statement, and no address comes to Python.

    python example_project/manage.py shell -c "
    from postoffice.reminders import remind_everybody; remind_everybody.delay()"

pipelines.py does the same with Spark, for mails by the million.
"""

from __future__ import annotations

from django.db.models import CharField, Count, F, Func

from django_pgqueue import task
from postoffice.acceptance import accept
from postoffice.drafts import Draft
from postoffice.models import EmailMessage, Status


# The mail is accepted with the ack of this job, or not at all: there is one reminder.
@task(queue="reminders", atomic=True)
def remind(address: str, mails: int) -> None:
    """Accept a mail to *address* that says how many there have been."""
    letter = Draft(
        subject=f"You have had {mails:,} mails from us",
        to=[address],
        cc=[],
        bcc=[],
        body="Thank you for reading them.\n",
    )
    accept([letter])


# The reminders are stored with the ack: a crash does not store them twice.
@task(queue="reminders", atomic=True)
def remind_everybody() -> int:
    """Store a reminder for each address that had a mail; return how many."""
    address = Func(F("to"), function="unnest", output_field=CharField())
    correspondents = (
        EmailMessage.objects.filter(status=Status.SENT)
        .annotate(address=address)
        .values("address")
        .annotate(mails=Count("pk"))
    )
    day = remind.spread("24h", by="address")
    return day.from_queryset(correspondents, address="address", mails="mails")
