"""What the jobs of one tag, or of one lane, took in one queue within one hour."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class LabelKind(models.TextChoices):
    """What a label is."""

    TAG = "tag", _("tag")
    LANE = "lane", _("lane")


class LabelHour(models.Model):
    """
    The jobs with a tag, or of a lane, that ended within an hour.

    Written by the pipeline job `metrics`, with TaskHour. A job with several tags counts
    for each of them. Of an hour and queue, the dearest labels of each kind are kept;
    the others are a row without a label.
    """

    pk = models.CompositePrimaryKey("hour", "queue", "kind", "label")
    hour = models.DateTimeField(_("hour"))
    queue = models.CharField(_("queue"), max_length=63)
    kind = models.CharField(_("kind"), max_length=4, choices=LabelKind.choices)
    # "": what has no row of its own.
    label = models.CharField(_("label"), max_length=255)
    jobs = models.BigIntegerField(_("jobs"))
    worker_seconds = models.FloatField(_("worker seconds"))

    class Meta:
        db_table = "pgqueue_label_hour"
        verbose_name = _("hour of a label")
        verbose_name_plural = _("hours of labels")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.label} in {self.queue}, {self.hour:%Y-%m-%d %H:00}"
