"""How many bytes a log may have, and how many jobs may wait for a subscriber."""

from pathlib import Path
from typing import Any

from django.db import migrations, models

from django_pgqueue.models.columns import IdArray

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")


def of(migration: str, name: str) -> str:
    """Return a function as an earlier migration made it."""
    text = Path(__file__).with_name(f"{migration}.sql").read_text("utf-8")
    return text.partition(f"-- {name}.sql\n")[2].partition("\n-- ")[0]


FUNCTIONS_BACK = (
    of("0009_subscription_lanes", "store_message")
    + of("0009_subscription_lanes", "store_messages")
    + of("0002_log", "publish")
    + of("0022_read_log", "pins")
)


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


def column(name: str, label: str, field: Any, **said: Any) -> Any:
    """Return what adds a column without a value: no row is written anew."""
    kept = field(blank=True, null=True, verbose_name=label, **said)
    return migrations.AddField("subscription", name, kept)


class Migration(migrations.Migration):
    """Columns, and a table, of which nothing that is there takes notice."""

    dependencies = [("pgqueue", "0022_read_log")]

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
        column("backlog_max", "backlog maximum", models.IntegerField),
        column("backlog_on_full", "when it is full", models.CharField, max_length=11),
        column("backlog", "backlog", models.IntegerField),
        column("backlog_at", "counted at", models.DateTimeField),
        column("full_at", "full since", models.DateTimeField),
        column("held_at", "held since", models.DateTimeField),
        column("missed", "missed epochs", IdArray),
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
    ]
