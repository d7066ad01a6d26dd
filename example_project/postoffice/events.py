"""
Events: what became of a mail, for whoever wants to know.

A message goes into the log of the topic "mail" in the transaction that writes the
outcome down: neither is there without the other. Who reads it is not the post office's
business; the app `counters` does. No address is told, only the domain of the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from django_pgqueue import topic

SENT, FAILED = "mail.sent", "mail.failed"

mails = topic("mail", partitions=4, retain="30d")


def tell(name: str, email_id: int, recipients: Sequence[str]) -> None:
    """Publish what became of a mail; messages about one mail keep their order."""
    domain = recipients[0].rpartition("@")[2].lower()
    payload = {"id": email_id, "domain": domain, "recipients": len(recipients)}
    mails.publish(name, payload, key=email_id)
