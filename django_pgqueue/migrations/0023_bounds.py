"""How many bytes a topic's log has, and may have."""

from django.db import migrations, models


# Up to which id the pipeline job ingest has written each topic to each of its places.
INGEST_POSITIONS = """
CREATE TABLE pgqueue_ingest_position (
    topic_id integer NOT NULL,
    target varchar(900) NOT NULL,
    read_to bigint NOT NULL,
    run_id bigint NOT NULL,
    read_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topic_id, target)
)
"""
INGEST_POSITIONS_BACK = "DROP TABLE pgqueue_ingest_position"


class Migration(migrations.Migration):
    """Columns, and a table, of which nothing that is there takes notice."""

    dependencies = [("pgqueue", "0016_durable_steps")]

    operations = [
        migrations.AddField(
            "topic",
            "retain_bytes",
            models.BigIntegerField(blank=True, null=True, verbose_name="bytes kept"),
        ),
        migrations.AddField(
            "topic",
            "log_bytes",
            models.BigIntegerField(blank=True, null=True, verbose_name="bytes"),
        ),
        migrations.AddField(
            "topic",
            "log_bytes_at",
            models.DateTimeField(blank=True, null=True, verbose_name="measured at"),
        ),
        migrations.AddField(
            "topic",
            "wait_for_ingest",
            models.DurationField(blank=True, null=True, verbose_name="wait for ingest"),
        ),
        migrations.AddField(
            "logday",
            "topic_bytes",
            models.JSONField(blank=True, null=True, verbose_name="bytes of topics"),
        ),
        migrations.RunSQL(INGEST_POSITIONS, INGEST_POSITIONS_BACK),
    ]
