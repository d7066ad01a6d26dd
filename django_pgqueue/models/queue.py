"""Queues, their lanes and permits, and the workers that serve them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_pgqueue.models.columns import CLOCK, JSON_LIST, JsonField


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
    visibility_seconds = models.FloatField(_("visibility in seconds"), null=True)
    max_receives = models.IntegerField(_("maximum receives"), null=True)

    # NULL: not paused. Workers leave the jobs of a paused queue alone.
    paused_at = models.DateTimeField(_("paused at"), null=True)
    paused_by = models.CharField(_("paused by"), max_length=150, null=True)
    # NULL: until it is ended.
    paused_until = models.DateTimeField(_("paused until"), null=True)
    pause_reason = models.TextField(_("pause reason"), null=True)

    # Of a queue with a limit: how many jobs it held when the leader last counted, one
    # more than the limit at most, and when that was.
    depth = models.IntegerField(_("depth"), null=True)
    depth_at = models.DateTimeField(_("depth counted at"), null=True)

    # What an operator says, in place of the settings: how many jobs may be claimed at a
    # time, and how many seconds there are from one to the next; NULL: theirs.
    concurrency = models.IntegerField(_("concurrency"), null=True)
    rate_spacing = models.FloatField(_("rate spacing"), null=True)
    rate_burst = models.IntegerField(_("rate burst"), null=True)
    # Of a rate, when burst jobs could be claimed at once: see queues/queue_limits.py.
    full_at = models.DateTimeField(_("full at"), null=True)

    class Meta:
        db_table = "pgqueue_queue"
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name


class Lane(models.Model):
    """
    Of a lane that has a rate, or about which an operator has said something.

    All others have no row here: a lane is made by its first job and gone with its last.
    """

    name = models.CharField(_("name"), max_length=255, primary_key=True)

    # Of a rate, as the promotion has last seen it; spacing NULL: it has none. When it
    # could let burst jobs through at once, and how many were through and not claimed.
    spacing = models.FloatField(_("spacing"), null=True)
    burst = models.IntegerField(_("burst"), null=True)
    full_at = models.DateTimeField(_("full at"), null=True)
    unclaimed = models.IntegerField(_("unclaimed"), db_default=0)

    # What an operator says: this capacity in place of what jobs say; NULL: theirs.
    capacity = models.IntegerField(_("capacity"), null=True)
    # While it is paused, nothing is let through; paused_until NULL: until it is ended.
    paused_at = models.DateTimeField(_("paused at"), null=True)
    paused_until = models.DateTimeField(_("paused until"), null=True)
    paused_by = models.CharField(_("paused by"), max_length=150, null=True)
    pause_reason = models.TextField(_("reason"), null=True)

    # Of a fair lane, how many jobs it has in a turn; NULL: one.
    weight = models.IntegerField(_("weight"), null=True)
    # Of a task, whose lane has its name: how often in a row its circuit breaker has
    # opened; 0: it is closed. While it is open the lane is paused. Then one job at a
    # time is let through, the probe, until it is closed.
    breaker_trips = models.IntegerField(_("breaker trips"), db_default=0)
    probe_id = models.BigIntegerField(_("probe"), null=True)

    class Meta:
        db_table = "pgqueue_lane"
        verbose_name = _("lane")
        verbose_name_plural = _("lanes")
        default_permissions = ("view",)
        indexes: ClassVar = [
            # Of millions with a rate, those of which an operator has said something.
            models.Index(
                fields=["name"],
                name="pgqueue_lane_controls",
                condition=Q(paused_at__isnull=False)
                | Q(capacity__isnull=False)
                | Q(weight__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return self.name


class Permit(models.Model):
    """
    A job that was claimed in a queue which lets so many run at a time.

    It says which rows to look at, and no more: a place is taken while the job is leased
    with this delivery. So none is lost with a process, and none is free too early.
    """

    job_id = models.BigIntegerField(_("job"), primary_key=True)
    queue = models.CharField(_("queue"), max_length=63)
    delivery = models.IntegerField(_("delivery"))

    class Meta:
        db_table = "pgqueue_permit"
        verbose_name = _("permit")
        verbose_name_plural = _("permits")
        default_permissions = ()
        indexes: ClassVar = [
            models.Index(fields=["queue"], name="pgqueue_permit_queue")
        ]

    def __str__(self) -> str:
        return f"{self.queue}: {self.job_id}"


class Worker(models.Model):
    """
    A row exists from the start of a worker process until its clean stop.

    One that was killed keeps its row, with an old heartbeat, until it is purged. No
    job depends on these rows: a lease carries its own end.
    """

    # Unique per process start: host, process id and a random part.
    name = models.CharField(_("name"), max_length=100, primary_key=True)
    hostname = models.CharField(_("host"), max_length=255)
    pid = models.IntegerField(_("process id"))
    # Empty: all queues.
    queues: JsonField = models.JSONField(_("queues"), db_default=JSON_LIST)
    threads = models.IntegerField(_("threads"))
    # How many coroutines it runs at once; 0: none of its tasks is async.
    async_slots = models.IntegerField(_("async slots"), db_default=0)
    version = models.CharField(_("version"), max_length=50)
    started_at = models.DateTimeField(_("started at"), db_default=CLOCK)
    heartbeat_at = models.DateTimeField(_("heartbeat at"), db_default=CLOCK)
    # While this is in the future, this worker does the chores of all.
    leader_until = models.DateTimeField(_("leader until"), null=True)

    class Meta:
        db_table = "pgqueue_worker"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name
