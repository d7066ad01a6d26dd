"""The journal of writes from Spark: what each was to do, and what became of it."""

from django.db import migrations

# One row for each write, made by the first of its tasks. While it is open, everything
# that the write has stored can be thrown away; once it is committing, nothing can.
# The name, where the caller gave one, is taken until the write is rolled back.
TABLE = """
CREATE TABLE pgqueue_spark_write (
    id uuid PRIMARY KEY,
    name varchar(100),
    mode varchar(9) NOT NULL
        CONSTRAINT pgqueue_spark_write_mode CHECK (mode IN ('staged', 'two-phase')),
    state varchar(11) NOT NULL DEFAULT 'open'
        CONSTRAINT pgqueue_spark_write_state
        CHECK (state IN ('open', 'committing', 'committed', 'rolled_back')),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    touched_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    stage_schema varchar(63),
    stage_table varchar(63),
    gids jsonb NOT NULL DEFAULT '[]',
    queues jsonb NOT NULL DEFAULT '[]',
    written bigint,
    skipped bigint,
    refused bigint,
    reasons jsonb NOT NULL DEFAULT '{}',
    refused_path text,
    refused_files jsonb NOT NULL DEFAULT '[]'
);
CREATE UNIQUE INDEX pgqueue_spark_write_name ON pgqueue_spark_write (name)
    WHERE state <> 'rolled_back';
CREATE INDEX pgqueue_spark_write_started ON pgqueue_spark_write (started_at);
"""
TABLE_BACK = "DROP TABLE pgqueue_spark_write"


class Migration(migrations.Migration):
    """It can be taken back."""

    dependencies = [("pgqueue", "0008_pipeline")]

    operations = [migrations.RunSQL(TABLE, TABLE_BACK)]
