"""Indexes of sagas by version and of batches by parent, made while both are in use."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Not atomic, since CONCURRENTLY takes no transaction."""

    atomic = False

    dependencies = [("pgqueue", "0017_workflow_versions")]

    operations = [
        AddIndexConcurrently(
            model_name="workflow",
            index=models.Index(
                condition=Q(finished_at__isnull=True, version__isnull=False),
                fields=["name", "version"],
                name="pgqueue_workflow_version",
            ),
        ),
        AddIndexConcurrently(
            model_name="workflow",
            index=models.Index(
                condition=Q(parent_id__isnull=False),
                fields=["parent_id", "id"],
                name="pgqueue_workflow_parent",
            ),
        ),
    ]
