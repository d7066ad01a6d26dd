"""
The journal of writes from Spark without what two-phase writing needed.

Whoever has its writes half committed is told so, and nothing is changed: what is
prepared is ended by the release that has prepared it.
"""

from django.db import migrations

# Locks: the table, which has a row for each write of 90 days, from all others until the
# end. The transaction ids are those of that release: "pgqueue:", write, attempt.
CHECK = """
LOCK TABLE pgqueue_spark_write IN ACCESS EXCLUSIVE MODE;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pgqueue_spark_write
                WHERE state = 'committing' OR state = 'open' AND mode = 'two-phase')
       OR EXISTS (SELECT FROM pgqueue_spark_write w
                    JOIN pg_prepared_xacts p
                      ON starts_with(p.gid, 'pgqueue:' || replace(w.id::text, '-', ''))
                   WHERE p.database = current_database()) THEN
        RAISE EXCEPTION 'A write of Spark with commit=two-phase has not ended.'
              USING HINT = 'Let it end. If its driver is dead, finish it with the '
                           'release before this one: python -m '
                           'django_pgqueue.spark.write.reap --stale 0';
    END IF;
END $$
"""

# Locks: the same.
DROP = """
ALTER TABLE pgqueue_spark_write
    DROP CONSTRAINT pgqueue_spark_write_state,
    ADD CONSTRAINT pgqueue_spark_write_state
        CHECK (state IN ('open', 'committed', 'rolled_back')),
    DROP COLUMN mode,
    DROP COLUMN gids
"""
BACK = """
ALTER TABLE pgqueue_spark_write
    DROP CONSTRAINT pgqueue_spark_write_state,
    ADD CONSTRAINT pgqueue_spark_write_state
        CHECK (state IN ('open', 'committing', 'committed', 'rolled_back')),
    ADD COLUMN mode varchar(9) NOT NULL DEFAULT 'staged'
        CONSTRAINT pgqueue_spark_write_mode CHECK (mode IN ('staged', 'two-phase')),
    ADD COLUMN gids jsonb NOT NULL DEFAULT '[]';
ALTER TABLE pgqueue_spark_write ALTER COLUMN mode DROP DEFAULT
"""


class Migration(migrations.Migration):
    """In one transaction."""

    dependencies = [("pgqueue", "0030_lake")]

    operations = [
        migrations.RunSQL(CHECK, migrations.RunSQL.noop),
        migrations.RunSQL(DROP, BACK),
    ]
