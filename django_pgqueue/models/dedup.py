"""Deduplication: periods of keys, and calls that a late job stands for."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import JsonField


class DedupWindow(models.Model):
    """
    A row exists from the first job of a period until the period is over and purged.

    So a period outlives its jobs: what was enqueued within it is known when they have
    long been done.
    """

    key = models.CharField(_("dedup key"), max_length=255, primary_key=True)
    # The period's end, by the database's clock.
    until = models.DateTimeField(_("until"))
    jobs = models.IntegerField(_("jobs"))
    # The latest of them, which callers are told of that come too late.
    job_id = models.BigIntegerField(_("job"))

    class Meta:
        db_table = "pgqueue_dedup_window"
        verbose_name = _("dedup window")
        verbose_name_plural = _("dedup windows")
        default_permissions = ("view",)
        indexes = [
            # Serves the purge.
            models.Index(fields=["until"], name="pgqueue_dedup_window_until"),
        ]

    def __str__(self) -> str:
        return self.key


class DedupCall(models.Model):
    """
    A call in a transaction whose key a late job has: it is made again after its commit.

    The job is not kept from running until then, so it may start before the call's
    transaction has committed. Then the call that is made again stores another one.
    """

    key = models.CharField(_("dedup key"), max_length=255)
    # The late job, which the caller was told of.
    holder_id = models.BigIntegerField(_("holder"))
    # What pgqueue_store_unique() is called with.
    queue = models.CharField(_("queue"), max_length=63)
    task = models.CharField(_("task"), max_length=255)
    args: JsonField = models.JSONField(_("positional arguments"))
    kwargs: JsonField = models.JSONField(_("keyword arguments"))
    headers: JsonField = models.JSONField(_("headers"))
    priority = models.SmallIntegerField(_("priority"))
    max_attempts = models.SmallIntegerField(_("maximum attempts"))
    run_after = models.DateTimeField(_("run after"), null=True)
    expires_at = models.DateTimeField(_("expires at"), null=True)
    hold = models.CharField(_("held while"), max_length=20)
    period = models.DurationField(_("period"), null=True)
    jobs = models.IntegerField(_("jobs in a period"), null=True)

    class Meta:
        db_table = "pgqueue_dedup_call"
        verbose_name = _("dedup call")
        verbose_name_plural = _("dedup calls")
        default_permissions = ()
        indexes = [
            # Serves the next call of the key, which stands for the earlier ones.
            models.Index(fields=["key"], name="pgqueue_dedup_call_key"),
        ]

    def __str__(self) -> str:
        return self.key
