"""Lanes: what jobs say of them, what else is known, and the function that promotes."""

from pathlib import Path
from typing import Any

from django.db import migrations, models

# Rows that were parked while nothing let them through: each was to be one of a group.
# Locks: row locks on these rows.
ADOPT = """
UPDATE pgqueue_job SET lane_due_at = greatest(run_after, enqueued_at),
       lane_capacity = nullif(lane_capacity, 1)
 WHERE lane IS NOT NULL AND visible_at IS NULL AND lane_due_at IS NULL
"""

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
# Its answer is the same, and what it is given besides would make it another function.
ENQUEUE = (
    "text, jsonb, jsonb, text, integer, timestamptz, timestamptz, integer, text, jsonb"
)
ENQUEUE_IN_LANES = f"{ENQUEUE}, text, integer, float8, integer"
FUNCTIONS = f"DROP FUNCTION pgqueue_enqueue({ENQUEUE});\n" + (
    Path(__file__).with_suffix(".sql").read_text("utf-8")
)
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
CORE = Path(__file__).with_name("0001_core.sql").read_text("utf-8")


def of_core(name: str) -> str:
    """Return a function as 0001_core made it."""
    return CORE.partition(f"-- {name}.sql\n")[2].partition("\n-- ")[0]


FUNCTIONS_BACK += (
    f"DROP FUNCTION pgqueue_enqueue({ENQUEUE_IN_LANES});\n"
    + of_core("retake_keys")
    + of_core("enqueue")
    + of_core("pins")
)


def of_all(name: str, field: Any) -> list[migrations.AddField]:
    """Return what adds a column to jobs, wherever they are."""
    tables = ("job", "archivedjob", "deadletter")
    return [migrations.AddField(model, name, field) for model in tables]


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
        *of_all(
            "lane_spacing",
            models.FloatField(blank=True, null=True, verbose_name="lane spacing"),
        ),
        *of_all(
            "lane_burst",
            models.IntegerField(blank=True, null=True, verbose_name="lane burst"),
        ),
        migrations.CreateModel(
            name="Lane",
            fields=[
                (
                    "name",
                    models.CharField(
                        max_length=255,
                        primary_key=True,
                        serialize=False,
                        verbose_name="name",
                    ),
                ),
                (
                    "spacing",
                    models.FloatField(blank=True, null=True, verbose_name="spacing"),
                ),
                (
                    "burst",
                    models.IntegerField(blank=True, null=True, verbose_name="burst"),
                ),
                (
                    "full_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="full at"),
                ),
                (
                    "unclaimed",
                    models.IntegerField(db_default=0, verbose_name="unclaimed"),
                ),
                (
                    "capacity",
                    models.IntegerField(blank=True, null=True, verbose_name="capacity"),
                ),
                (
                    "paused_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="paused at"
                    ),
                ),
                (
                    "paused_until",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="paused until"
                    ),
                ),
                (
                    "paused_by",
                    models.CharField(
                        blank=True,
                        max_length=150,
                        null=True,
                        verbose_name="paused by",
                    ),
                ),
                (
                    "pause_reason",
                    models.TextField(blank=True, null=True, verbose_name="reason"),
                ),
            ],
            options={
                "verbose_name": "lane",
                "verbose_name_plural": "lanes",
                "db_table": "pgqueue_lane",
                "default_permissions": ("view",),
            },
        ),
        migrations.AddIndex(
            model_name="lane",
            index=models.Index(
                fields=["name"],
                name="pgqueue_lane_controls",
                condition=models.Q(paused_at__isnull=False)
                | models.Q(capacity__isnull=False),
            ),
        ),
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
        migrations.RunSQL(ADOPT, migrations.RunSQL.noop),
    ]
