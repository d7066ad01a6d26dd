"""
What the counters make of the post office's messages.

    mail.sent     {"id": 7, "domain": "example.org", "recipients": 2}
    mail.failed   the same, of a mail that was given up

atomic: counting and the ack are one transaction, so a message that is delivered twice
counts once.
"""

from __future__ import annotations

from counters.models import MailCount
from django_pgqueue import Message, subscribe


@subscribe("mail.sent", queue="counters", start="earliest", atomic=True)
def count_sent(message: Message) -> None:
    """Count a mail that was sent: a job for each message."""
    day = message.published_at.date()
    MailCount.objects.add(day, message.payload["domain"], sent=1)


@subscribe("mail.failed", queue="counters", start="earliest", atomic=True)
def count_failed(message: Message) -> None:
    """Count a mail that was given up."""
    day = message.published_at.date()
    MailCount.objects.add(day, message.payload["domain"], failed=1)
