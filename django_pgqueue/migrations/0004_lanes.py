"""Lanes: from when on a parked job may be let through, and the function that does it."""

from pathlib import Path

from django.db import migrations, models

# Rows that were parked while nothing let them through: each was to be one of a group.
# Locks: row locks on these rows.
ADOPT = """
UPDATE pgqueue_job SET lane_due_at = greatest(run_after, enqueued_at),
       lane_capacity = nullif(lane_capacity, 1)
 WHERE lane IS NOT NULL AND visible_at IS NULL AND lane_due_at IS NULL
"""

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")
FUNCTIONS_BACK = """
CREATE OR REPLACE FUNCTION pgqueue_job_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.lane IS NOT NULL THEN
        NEW.visible_at := NULL;
        NEW.lane_capacity := coalesce(NEW.lane_capacity, 1);
    ELSE
        NEW.visible_at := greatest(NEW.run_after, clock_timestamp());
    END IF;
    RETURN NEW;
END $$;
DROP FUNCTION pgqueue_promote;
"""


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0003_pipeline")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="lane_due_at",
            field=models.DateTimeField(
                blank=True, null=True, verbose_name="due in its lane at"
            ),
        ),
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
        migrations.RunSQL(ADOPT, migrations.RunSQL.noop),
    ]
