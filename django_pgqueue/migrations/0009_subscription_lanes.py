"""Lanes of subscriptions: which messages' jobs wait for one another."""

from pathlib import Path
from typing import Any

from django.db import migrations, models

from django_pgqueue.models.columns import TextArray

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")


def of(migration: str, name: str) -> str:
    """Return a function as an earlier migration made it."""
    text = Path(__file__).with_name(f"{migration}.sql").read_text("utf-8")
    return text.partition(f"-- {name}.sql\n")[2].partition("\n-- ")[0]


FUNCTIONS_BACK = (
    "ALTER TABLE pgqueue_subscription DROP CONSTRAINT pgqueue_subscription_lane;\n"
    + of("0002_log", "store_message")
    + of("0002_log", "store_messages")
    + "DROP FUNCTION pgqueue_message_lane;\n"
    + of("0007_lane_policies", "pins")
)


def column(name: str, label: str, field: Any) -> Any:
    """Return what adds a column without a value: no row is written anew."""
    kept = field(blank=True, null=True, verbose_name=label)
    return migrations.AddField("subscription", name, kept)


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0008_fair_index")]

    operations = [
        column("lane_by", "lane by", TextArray),
        column("lane_capacity", "lane capacity", models.IntegerField),
        column("lane_spacing", "lane spacing", models.FloatField),
        column("lane_burst", "lane burst", models.IntegerField),
        column(
            "lane_policy",
            "lane policy",
            lambda **said: models.CharField(max_length=20, **said),
        ),
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
    ]
