"""Suspects: an index of the few jobs that run alone."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds an index that is empty but after a crash."""

    dependencies = [
        ("pgqueue", "0016_dedup_call"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("runs_alone", True)),
                fields=["visible_at"],
                name="pgqueue_job_alone",
            ),
        ),
    ]
