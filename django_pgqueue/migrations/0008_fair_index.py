"""An index of lanes that take turns, made while the queue is in use."""

from django.contrib.postgres.operations import (
    AddIndexConcurrently,
    RemoveIndexConcurrently,
)
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Coalesce


class Migration(migrations.Migration):
    """Not atomic, since CONCURRENTLY takes no transaction."""

    atomic = False

    dependencies = [("pgqueue", "0007_lane_policies")]

    operations = [
        RemoveIndexConcurrently(model_name="job", name="pgqueue_job_lane_intake"),
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                fields=["lane_due_at", "id"],
                name="pgqueue_job_lane_intake",
                condition=Q(lane_due_at__isnull=False) & ~Q(lane_policy="fair"),
            ),
        ),
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                fields=["queue", "lane", "lane_due_at"],
                name="pgqueue_job_fair",
                condition=Q(visible_at__isnull=True, lane_policy="fair"),
            ),
        ),
        RemoveIndexConcurrently(model_name="job", name="pgqueue_job_lane_visible"),
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                F("lane"),
                Coalesce("promotion", 0),
                name="pgqueue_job_lane_visible",
                condition=Q(visible_at__isnull=False, lane__isnull=False),
            ),
        ),
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                fields=["lane", "id", "promotion"],
                name="pgqueue_job_lane_back",
                condition=Q(
                    visible_at__isnull=True,
                    lane__isnull=False,
                    promotion__isnull=False,
                ),
            ),
        ),
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                fields=["lane", "lane_due_at", "id"],
                name="pgqueue_job_lane_back_due",
                condition=Q(
                    visible_at__isnull=True,
                    lane_capacity__isnull=False,
                    promotion__isnull=False,
                ),
            ),
        ),
        RemoveIndexConcurrently(model_name="lane", name="pgqueue_lane_controls"),
        AddIndexConcurrently(
            model_name="lane",
            index=models.Index(
                fields=["name"],
                name="pgqueue_lane_controls",
                condition=Q(paused_at__isnull=False)
                | Q(capacity__isnull=False)
                | Q(weight__isnull=False),
            ),
        ),
    ]
