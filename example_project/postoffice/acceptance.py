"""
Acceptance: the moment from which a mail is never forgotten.

The rows and the jobs that will send them commit together or not at all. There is no
time between "stored" and "queued" in which a crash could lose a mail, and no broker
that could have heard of a mail that was rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction

from postoffice.drafts import Draft
from postoffice.models import EmailMessage
from postoffice.tasks import send_email


def accept(drafts: Iterable[Draft]) -> list[int]:
    """Store the mails and the jobs that send them; return the ids in order."""
    mails = [
        EmailMessage(
            subject=draft.subject,
            to=draft.to,
            cc=draft.cc,
            bcc=draft.bcc,
            body=draft.body,
        )
        for draft in drafts
    ]
    with transaction.atomic():
        EmailMessage.objects.bulk_create(mails)
        jobs = send_email.bulk([(mail.pk,) for mail in mails])
        for mail, job in zip(mails, jobs, strict=True):
            mail.job = job
        EmailMessage.objects.bulk_update(mails, ["job"])
    return [mail.pk for mail in mails]
