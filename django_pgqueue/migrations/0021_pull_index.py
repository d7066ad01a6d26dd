"""An index of messages that wait in lanes, made while the queue is in use."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import F, Q, Value

from django_pgqueue.models.columns import LaneHash


class Migration(migrations.Migration):
    """Not atomic, since CONCURRENTLY takes no transaction."""

    atomic = False

    dependencies = [("pgqueue", "0020_pull")]

    operations = [
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                F("queue"),
                LaneHash("lane", Value(0)),
                F("lane"),
                F("id"),
                name="pgqueue_job_pull",
                condition=Q(visible_at__isnull=True, task="pgqueue.pull"),
            ),
        ),
    ]
