"""
EmailMessage: a mail that was accepted, and what became of it.

Its status changes only by the guarded updates of EmailMessageQuerySet: the expected
status, and the claim that is expected, stand in WHERE. So of two workers that come to
the same row, one is told no: its job was delivered again after a crash, or it was taken
for dead while it only slept. Each no is counted, in ``duplicates``, and logged.

What ends a mail is also published, in the same transaction: see events.py.

    scheduled ── claim ──▶ claimed ── mark_sent ──▶ sent
        ▲                  │  ▲  │
        └──── postpone ────┘  │  └── mark_error ──▶ error
                              └────── claim ──────────┘   after a redrive
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models, transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from django_pgqueue import JobField
from postoffice import events

SUBJECT_MAX = 255  # Characters.
ADDRESS_MAX = 254  # Characters: what a forward-path of SMTP has room for.

logger = logging.getLogger(__name__)


class Status(models.TextChoices):
    """Where a mail is on its way."""

    SCHEDULED = "scheduled"  # Accepted; waits for a worker or for its next attempt.
    CLAIMED = "claimed"  # A worker is sending it, or died while it did.
    SENT = "sent"  # The mail server took it.
    ERROR = "error"  # Given up; the error says why, a redrive tries again.


# What is published of a mail that has come to its end.
EVENTS = {Status.SENT: events.SENT, Status.ERROR: events.FAILED}


class EmailMessageQuerySet(models.QuerySet["EmailMessage"]):
    """The guarded updates. Each answers whether the row was as expected."""

    def claim(self, pk: int, claim: UUID) -> bool:
        """
        Take the mail for sending.

        From scheduled as a rule; from claimed when its last worker died, which may or
        may not have been after the mail was sent; from error when its dead letter was
        redriven. Only what was sent is never taken again.
        """
        free = Q(status__in=[Status.SCHEDULED, Status.CLAIMED, Status.ERROR])
        return self._move(pk, free, Status.CLAIMED, claim=claim)

    def postpone(self, pk: int, claim: UUID, error: str) -> bool:
        """Put the mail back, after a failure that may pass."""
        ours = Q(status=Status.CLAIMED, claim=claim)
        return self._move(pk, ours, Status.SCHEDULED, error=error)

    def mark_sent(self, pk: int, claim: UUID) -> bool:
        """Record that the mail server took the mail."""
        ours = Q(status=Status.CLAIMED, claim=claim)
        return self._move(pk, ours, Status.SENT, error="")

    def mark_error(self, pk: int, error: str) -> bool:
        """Record that the mail was given up, whoever had claimed it."""
        open_ = Q(status__in=[Status.SCHEDULED, Status.CLAIMED])
        return self._move(pk, open_, Status.ERROR, error=error)

    def _move(self, pk: int, expected: Q, to: Status, **columns: Any) -> bool:
        row = self.filter(pk=pk)
        with transaction.atomic():
            if row.filter(expected).update(status=to, updated_at=Now(), **columns):
                if to in EVENTS:
                    events.tell(EVENTS[to], pk, row.get().recipients)
                return True
        if row.update(duplicates=F("duplicates") + 1):  # Else there is no such row.
            logger.warning("mail %s was dealt with by another: not %s again", pk, to)
        return False


class EmailMessage(models.Model):
    """A row exists from the moment a mail was accepted; it is kept for audit."""

    # Written with the row, in one transaction; see acceptance.py.
    job = JobField(null=True, blank=True, db_index=True)

    subject = models.CharField(max_length=SUBJECT_MAX)
    to = ArrayField(models.CharField(max_length=ADDRESS_MAX))
    cc = ArrayField(models.CharField(max_length=ADDRESS_MAX), default=list, blank=True)
    bcc = ArrayField(models.CharField(max_length=ADDRESS_MAX), default=list, blank=True)
    body = models.TextField()

    status = models.CharField(
        max_length=9, choices=Status.choices, default=Status.SCHEDULED
    )
    # Drawn by each claim: a worker that lost its job no longer moves the row.
    claim = models.UUIDField(null=True, blank=True)
    # The latest failure; of a scheduled mail the one that made it wait.
    error = models.TextField(blank=True, default="")
    # How often a job came for this mail although it had been dealt with.
    duplicates = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    objects = EmailMessageQuerySet.as_manager()

    class Meta:
        verbose_name = "e-mail message"
        indexes = [
            # Serves the page filtered by status, newest first.
            models.Index(fields=["status", "-id"], name="postoffice_status"),
            # Serves the count of duplicates.
            models.Index(
                fields=["id"],
                name="postoffice_duplicates",
                condition=Q(duplicates__gt=0),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="postoffice_status_is_known",
                condition=Q(status__in=Status.values),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.subject} ({self.status})"

    @property
    def recipients(self) -> list[str]:
        """Everybody who gets it, in the order to, cc, bcc."""
        return [*self.to, *self.cc, *self.bcc]


class MailChange(models.Model):
    """A change of a mail's status, as it was captured: see audit.py."""

    # Without a constraint: a mail may be gone before its change is noted.
    mail = models.ForeignKey(
        EmailMessage, models.CASCADE, related_name="changes", db_constraint=False
    )
    at = models.DateTimeField()
    before = models.CharField(max_length=9)
    after = models.CharField(max_length=9)
    error = models.TextField(blank=True, default="")
    # Who has made it, where somebody has said so.
    actor = models.CharField(max_length=255, blank=True, default="")

    class Meta:
        verbose_name = "change"

    def __str__(self) -> str:
        return f"{self.before} → {self.after}"


class Reply(models.Model):
    """What somebody has answered to a mail; stored once: see replies.py."""

    email = models.ForeignKey(EmailMessage, models.CASCADE, related_name="replies")
    sender = models.CharField(max_length=ADDRESS_MAX)
    text = models.TextField()
    received_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "replies"

    def __str__(self) -> str:
        return f"{self.sender} to {self.email_id}"
