"""Policies of lanes, limits of queues, and pauses that end by themselves."""

from pathlib import Path
from typing import Any

from django.db import migrations, models

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
# What pgqueue_enqueue() and pgqueue_promote() are given besides would make them other
# functions.
ENQUEUE_IN_LANES = (
    "text, jsonb, jsonb, text, integer, timestamptz, timestamptz, integer, text, jsonb,"
    " text, integer, float8, integer"
)
FLOORS = "bigint[], bigint[], timestamptz[]"
FUNCTIONS = (
    f"DROP FUNCTION pgqueue_enqueue({ENQUEUE_IN_LANES});\n"
    "DROP FUNCTION pgqueue_promote(text[], boolean);\n"
    "CREATE SEQUENCE pgqueue_promotion;\n"
) + (Path(__file__).with_suffix(".sql").read_text("utf-8"))
FUNCTIONS_BACK = (
    f"DROP FUNCTION pgqueue_turns, pgqueue_enqueue({ENQUEUE_IN_LANES}, text);\n"
    f"DROP FUNCTION pgqueue_promote(text[], boolean, {FLOORS});\n"
    "DROP SEQUENCE pgqueue_promotion;\n"
    + Path(__file__).with_name("0004_lanes.sql").read_text("utf-8")
)


def column(model: str, name: str, label: str, field: Any, **more: Any) -> Any:
    """Return what adds a column without a value: no row is written anew."""
    return migrations.AddField(
        model, name, field(blank=True, null=True, verbose_name=label, **more)
    )


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0006_queue_depth")]

    operations = [
        *(
            column(model, "lane_policy", "lane policy", models.CharField, max_length=20)
            for model in ("job", "archivedjob", "deadletter")
        ),
        column("job", "promotion", "promotion", models.BigIntegerField),
        column("lane", "weight", "weight", models.IntegerField),
        migrations.AddField(
            "lane",
            "breaker_trips",
            models.IntegerField(db_default=0, verbose_name="breaker trips"),
        ),
        column("lane", "probe_id", "probe", models.BigIntegerField),
        column("queue", "paused_until", "paused until", models.DateTimeField),
        column("queue", "concurrency", "concurrency", models.IntegerField),
        column("queue", "rate_spacing", "rate spacing", models.FloatField),
        column("queue", "rate_burst", "rate burst", models.IntegerField),
        column("queue", "full_at", "full at", models.DateTimeField),
        migrations.CreateModel(
            name="Permit",
            fields=[
                (
                    "job_id",
                    models.BigIntegerField(
                        primary_key=True, serialize=False, verbose_name="job"
                    ),
                ),
                ("queue", models.CharField(max_length=63, verbose_name="queue")),
                ("delivery", models.IntegerField(verbose_name="delivery")),
            ],
            options={
                "verbose_name": "permit",
                "verbose_name_plural": "permits",
                "db_table": "pgqueue_permit",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["queue"], name="pgqueue_permit_queue")
                ],
            },
        ),
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
    ]
