"""
What the worker does: send one mail.

A mail may be sent twice only if the worker dies between the mail server's "250 OK" and
mark_sent(), because nobody can then know of the 250. Receivers that care recognise the
second one by its Message-ID, which stays the same through every attempt.
"""

from __future__ import annotations

import smtplib
from uuid import uuid4

from django.core import mail

from django_pgqueue import Reject, Retry, task
from django_pgqueue.tasks.context import JobContext
from postoffice.models import EmailMessage

MESSAGE_ID_DOMAIN = "post-office.example"
ERROR_MAX = 1_000  # Characters kept of what a mail server said.


@task(
    queue="mail",
    takes_context=True,
    timeout="60s",
    # About 1, 2, 4, … seconds: most mail servers that say "later" mean soon. After 14
    # attempts, some two hours, the mail is a dead letter; an administrator can redrive.
    retries=Retry(max_attempts=14, base="1s", cap="1h", jitter="equal"),
)
def send_email(ctx: JobContext, email_id: int) -> str:
    """Send the mail, unless that was done before; return what happened."""
    claim = uuid4()
    if not EmailMessage.objects.claim(email_id, claim):
        if not EmailMessage.objects.filter(pk=email_id).exists():
            raise Reject(f"Mail {email_id} is gone: its row was deleted.")
        return "was sent before"

    try:
        message = EmailMessage.objects.get(pk=email_id)
        deliver(message, message_id=f"<{ctx.idempotency_key}@{MESSAGE_ID_DOMAIN}>")
    except Exception as error:
        answer = described(error)
        EmailMessage.objects.postpone(email_id, claim, answer)
        if is_final(error):
            # A dead letter at once; receivers.py writes that down in the mail's row.
            raise Reject(answer) from error
        raise  # The task's Retry says when to try again.

    if not EmailMessage.objects.mark_sent(email_id, claim):
        return "sent, and so did another worker"
    return "sent"


def deliver(message: EmailMessage, *, message_id: str) -> None:
    """
    Send the mail through the backend that EMAIL_URL names.

    Raises:
        smtplib.SMTPException: What the server said.
        OSError: It cannot be reached, or is mute for longer than MAIL_TIMEOUT.
    """
    mail.EmailMessage(
        subject=message.subject,
        body=message.body,
        to=message.to,
        cc=message.cc,
        bcc=message.bcc,
        headers={"Message-ID": message_id, "X-Post-Office": str(message.pk)},
    ).send()


def is_final(error: BaseException) -> bool:
    """Whether the mail server said 5xx: no other attempt will do better."""
    return any(500 <= code <= 599 for code, _ in answers(error))


def described(error: BaseException) -> str:
    """Return what went wrong for people: the server's answer, or else the error."""
    said = "; ".join(f"{code} {text}" for code, text in answers(error))
    # PostgreSQL stores no NUL, and a mail server may say anything.
    text = (said or f"{type(error).__name__}: {error}").replace("\x00", " ")
    return text[:ERROR_MAX]


def answers(error: BaseException) -> list[tuple[int, str]]:
    """Return the SMTP codes and texts that *error* carries; [] for none."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return [
            (code, f"{text_of(text)} ({address})")
            for address, (code, text) in error.recipients.items()
        ]
    if isinstance(error, smtplib.SMTPResponseException):
        return [(error.smtp_code, text_of(error.smtp_error))]
    return []


def text_of(answer: bytes | str) -> str:
    """Return what a server said as text, whatever its encoding."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer
