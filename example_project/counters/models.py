"""
Counters: what came of the mails, counted twice, in two ways that must agree.

MailCount is written by subscriptions: a job for each message, in any order. MailTotal
is written by a consumer group: hundreds of messages at a time. Each is one transaction
with the ack, or with the group's position, so each message counts once, whatever is
killed meanwhile.
"""

from __future__ import annotations

from datetime import date

from django.db import models
from django.db.models import F


class MailCountQuerySet(models.QuerySet["MailCount"]):
    """Counting, safe beside others that count."""

    def add(self, day: date, domain: str, *, sent: int = 0, failed: int = 0) -> None:
        """Add to the row of a day and a domain, which is made if there is none."""
        row = self.model(day=day, domain=domain)
        self.bulk_create([row], ignore_conflicts=True)
        self.filter(day=day, domain=domain).update(
            sent=F("sent") + sent, failed=F("failed") + failed
        )


class MailCount(models.Model):
    """How many mails to a domain were sent and given up on a day (UTC)."""

    day = models.DateField()
    domain = models.CharField(max_length=255)
    sent = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)

    objects = MailCountQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["day", "domain"], name="counters_day_and_domain"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.domain}"


class MailTotalQuerySet(models.QuerySet["MailTotal"]):
    """Counting, safe beside others that count."""

    def add(self, name: str, mails: int) -> None:
        """Add to the total of a message's name, which is made if there is none."""
        self.bulk_create([self.model(name=name)], ignore_conflicts=True)
        self.filter(name=name).update(mails=F("mails") + mails)


class MailTotal(models.Model):
    """How many messages of a name there were, since the group began."""

    name = models.CharField(max_length=255, primary_key=True)
    mails = models.PositiveBigIntegerField(default=0)

    objects = MailTotalQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.name}: {self.mails}"
