"""
Receivers: a job that gave up ends its mail, whatever ended the job.

Rejected by the mail server, out of attempts, or its worker killed once too often: the
job is a dead letter first, and then its mail says error. Should the worker die between
the two, the next one that starts makes up for it.
"""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from django_pgqueue import Reject
from django_pgqueue.models import DeadLetter
from django_pgqueue.signals import job_dead, worker_started
from postoffice.models import EmailMessage, Status
from postoffice.tasks import ERROR_MAX, described, send_email


@receiver(job_dead)
def end_mail(job: Any, reason: str, error: BaseException | None, **_: Any) -> None:
    """Write down why the mail of a dead job was given up."""
    if job.task != send_email.name:
        return
    said = None if error is None else _said(error)
    mails = EmailMessage.objects.filter(job=job.id)
    for email_id in mails.values_list("pk", flat=True):
        EmailMessage.objects.mark_error(email_id, explained(reason, said))


@receiver(worker_started)
def end_forgotten_mails(**_: Any) -> None:
    """End the mails whose job died in a worker that died right afterwards."""
    open_mails = EmailMessage.objects.filter(
        status__in=[Status.SCHEDULED, Status.CLAIMED],
        job__in=DeadLetter.objects.values("id"),
    )
    for email_id, job_id in open_mails.values_list("pk", "job"):
        assert job_id is not None  # It is the id of a dead letter.
        letter = DeadLetter.objects.filter(pk=job_id).first()
        if letter is not None:  # Else it was redriven meanwhile.
            said = letter.errors[-1]["message"] if letter.errors else None
            EmailMessage.objects.mark_error(email_id, explained(letter.reason, said))


def _said(error: BaseException) -> str:
    return error.why if isinstance(error, Reject) else described(error)


def explained(reason: str, said: str | None) -> str:
    """Return a mail's error: the dead letter's reason, and the last word."""
    return f"{reason}: {said}"[:ERROR_MAX] if said else reason
