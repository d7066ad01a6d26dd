"""Messages that are erased, and files of ingest that are rewritten."""

from django.db import migrations, models

# Which run has a folder of ingest's files to itself; and once it has decided, the files
# that it replaces, and those by which. Whoever comes next finishes that.
INGEST_REWRITES = """
CREATE TABLE pgqueue_ingest_rewrite (
    target varchar(900) NOT NULL,
    folder varchar(200) NOT NULL,
    run_id bigint NOT NULL,
    put jsonb NOT NULL DEFAULT '[]',
    replaced jsonb NOT NULL DEFAULT '[]',
    taken_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (target, folder)
)
"""
INGEST_REWRITES_BACK = "DROP TABLE pgqueue_ingest_rewrite"


class Migration(migrations.Migration):
    """Columns with a constant for a default, and a table."""

    dependencies = [("pgqueue", "0033_no_two_phase")]

    operations = [
        migrations.AddField(
            "erasure",
            "messages",
            models.JSONField(
                db_default=models.Value({}, models.JSONField()),
                verbose_name="messages",
            ),
        ),
        migrations.AddField(
            "erasure",
            "ingested",
            models.JSONField(
                db_default=models.Value([], models.JSONField()),
                verbose_name="files of ingest",
            ),
        ),
        migrations.RunSQL(INGEST_REWRITES, INGEST_REWRITES_BACK),
    ]
