"""Manifests are the truth about files: what they replace, and which run's batch it is."""

from django.db import migrations, models

# The latest batch of each checkpoint of the pipeline job ingest: which run's files it
# is made of. A run that is no longer live cannot change it.
TABLE = """
CREATE TABLE pgqueue_ingest_batch (
    stream uuid PRIMARY KEY,
    number bigint NOT NULL,
    run_id bigint NOT NULL,
    decided_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
TABLE_BACK = "DROP TABLE pgqueue_ingest_batch"


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0018_publish")]

    operations = [
        migrations.AddField(
            model_name="export",
            name="replaced",
            field=models.JSONField(
                db_default=models.Value([], models.JSONField()),
                verbose_name="replaced",
            ),
        ),
        migrations.AddField(
            model_name="export",
            name="checked_at",
            field=models.DateTimeField(
                blank=True, null=True, verbose_name="checked at"
            ),
        ),
        migrations.RunSQL(TABLE, TABLE_BACK),
    ]
