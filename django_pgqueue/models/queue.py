"""A queue that a worker has met, and what an operator said about it."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK


class Queue(models.Model):
    """
    A row exists from the first time a worker claims from the queue; that of a pull
    queue from when it was declared.

    Jobs name their queue as text, without a foreign key: an enqueue needs no row here
    and never waits for one.
    """

    name = models.CharField(_("name"), max_length=63, primary_key=True)
    created_at = models.DateTimeField(_("created at"), db_default=CLOCK)

    # "tasks": workers run what is in it. "pull": clients receive it, and no worker.
    kind = models.CharField(_("kind"), max_length=10, db_default="tasks")
    # Of a pull queue: for how long a message is its receiver's, and how often it is
    # received at most. NULL: 30, and 5; see sql/pull_queue.sql.
    visibility_seconds = models.FloatField(
        _("visibility in seconds"), null=True, blank=True
    )
    max_receives = models.IntegerField(_("maximum receives"), null=True, blank=True)

    # NULL: not paused. Workers leave the jobs of a paused queue alone.
    paused_at = models.DateTimeField(_("paused at"), null=True, blank=True)
    paused_by = models.CharField(_("paused by"), max_length=150, null=True, blank=True)
    # NULL: until it is ended.
    paused_until = models.DateTimeField(_("paused until"), null=True, blank=True)
    pause_reason = models.TextField(_("pause reason"), null=True, blank=True)

    # Of a queue with a limit: how many jobs it held when the leader last counted, one
    # more than the limit at most, and when that was.
    depth = models.IntegerField(_("depth"), null=True, blank=True)
    depth_at = models.DateTimeField(_("depth counted at"), null=True, blank=True)

    # What an operator says, in place of the settings: how many jobs may be claimed at a
    # time, and how many seconds there are from one to the next; NULL: theirs.
    concurrency = models.IntegerField(_("concurrency"), null=True, blank=True)
    rate_spacing = models.FloatField(_("rate spacing"), null=True, blank=True)
    rate_burst = models.IntegerField(_("rate burst"), null=True, blank=True)
    # Of a rate, when burst jobs could be claimed at once: see queues/queue_limits.py.
    full_at = models.DateTimeField(_("full at"), null=True, blank=True)

    class Meta:
        db_table = "pgqueue_queue"
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name
