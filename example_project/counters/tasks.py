"""
What the counters make of the post office's messages.

    mail.sent     {"id": 7, "domain": "example.org", "recipients": 2}
    mail.failed   the same, of a mail that was given up

atomic: counting and the ack are one transaction, so a message that is delivered twice
counts once.
"""

from __future__ import annotations

from collections import Counter

from counters.models import MailCount, MailTotal
from django_pgqueue import Message, consume, subscribe


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


@consume(
    "mail", group="totals", queue="counters", start="earliest", atomic=True, lease="10s"
)
def add_up(messages: list[Message]) -> None:
    """Add up: one update for a batch, however many messages it has."""
    # In the order of names: two partitions that are read at a time do not deadlock.
    for name, mails in sorted(Counter(each.name for each in messages).items()):
        MailTotal.objects.add(name, mails)
