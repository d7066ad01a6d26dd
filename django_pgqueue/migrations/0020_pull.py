"""Pull queues: messages that clients receive, and no worker claims."""

from pathlib import Path

from django.db import migrations, models

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")


def of(migration: str, name: str) -> str:
    """Return a function as an earlier migration made it."""
    text = Path(__file__).with_name(f"{migration}.sql").read_text("utf-8")
    return text.partition(f"-- {name}.sql\n")[2].partition("\n-- ")[0]


FUNCTIONS_BACK = (
    """
DROP FUNCTION pgqueue_receive, pgqueue_ack, pgqueue_nack, pgqueue_reject,
    pgqueue_extend, pgqueue_due_in, pgqueue_send, pgqueue_send_many, pgqueue_declare_queue,
    pgqueue_pull_heads, pgqueue_pull_archive, pgqueue_pull_bury, pgqueue_pull_errors,
    pgqueue_pull_answer, pgqueue_pull_receipts, pgqueue_pull_lane, pgqueue_pull_queue,
    pgqueue_check_send;
"""
    + of("0017_workflow_versions", "watch")
    + of("0019_capture", "pins")
)


class Migration(migrations.Migration):
    """Columns without a value of their own: no row is written anew."""

    dependencies = [("pgqueue", "0019_capture")]

    operations = [
        migrations.AddField(
            "queue",
            "kind",
            models.CharField(db_default="tasks", max_length=10, verbose_name="kind"),
        ),
        migrations.AddField(
            "queue",
            "visibility_seconds",
            models.FloatField(
                blank=True, null=True, verbose_name="visibility in seconds"
            ),
        ),
        migrations.AddField(
            "queue",
            "max_receives",
            models.IntegerField(blank=True, null=True, verbose_name="maximum receives"),
        ),
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
    ]
