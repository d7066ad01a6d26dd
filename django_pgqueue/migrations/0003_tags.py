"""Indexes that find jobs by their tags, wherever the row is."""

from django.db import migrations

# Partial: a row without tags costs one look into its headers, and nothing is written.
# IS NOT NULL, since the planner proves it from any strict operator: a query that says
# headers -> 'tags' @> '["x"]' needs no second condition.
# A small pending list: what is in it is searched row by row, and whoever fills it up
# sorts it in.
# On the partitioned archive, each day gets the index when it is attached.
# Locks: SHARE on each table while it is read once: enqueues and settles wait.
TAGS = """
CREATE INDEX {table}_tags ON {table} USING gin ((headers -> 'tags'))
    WITH (gin_pending_list_limit = 256) WHERE (headers -> 'tags') IS NOT NULL
"""
TAGS_BACK = "DROP INDEX {table}_tags"

TABLES = ("pgqueue_job", "pgqueue_archived_job", "pgqueue_dead_letter")


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0002_functions")]

    operations = [
        migrations.RunSQL(TAGS.format(table=table), TAGS_BACK.format(table=table))
        for table in TABLES
    ]
