"""
Audit: every change of a mail's status is noted, whoever makes it.

A trigger of the table publishes the changes (migrations/0002_audit.py), so that also
what somebody does in psql, or in bulk, is told. They are noted in one transaction with
the position of the group that reads them: each once.
"""

from __future__ import annotations

from django_pgqueue import Change, Message, consume, topic
from postoffice.models import MailChange

changes = topic("mailaudit", partitions=4, retain="30d")


@consume(changes, group="audit", queue="audit", start="earliest", atomic=True)
def note_changes(messages: list[Message]) -> None:
    """Note the changes of a batch."""
    noted = []
    for change in map(Change.of, messages):
        # The capture is of updates, which have both.
        assert change.old is not None
        assert change.new is not None
        noted.append(
            MailChange(
                mail_id=change.pk,
                at=change.message.published_at,
                before=change.old["status"],
                after=change.new["status"],
                error=change.new["error"],
                actor=change.actor or "",
            )
        )
    MailChange.objects.bulk_create(noted)
