"""Which steps a saga began with, and batches that are in others."""

from pathlib import Path

from django.db import migrations, models

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")

# Called with as many arguments by older processes, which this one serves as well.
OLD_START = "DROP FUNCTION pgqueue_start_workflow;\n"


def of(migration: str, name: str) -> str:
    """Return a function as an earlier migration made it."""
    text = Path(__file__).with_name(f"{migration}.sql").read_text("utf-8")
    return text.partition(f"-- {name}.sql\n")[2].partition("\n-- ")[0]


FUNCTIONS_BACK = "\n".join(
    [
        "DROP TRIGGER pgqueue_batch_moved ON pgqueue_workflow;",
        "DROP FUNCTION pgqueue_start_workflow, pgqueue_batch_moved;",
        *(
            of("0015_workflows", name)
            for name in (
                *("failure_of", "start_workflow", "add_steps", "close_workflow"),
                *("steps_ended", "letters_gone"),
            )
        ),
        "DROP FUNCTION pgqueue_lock_workflows, pgqueue_batches_in;",
        of("0010_watch", "watch"),
        of("0015_workflows", "pins"),
    ]
)


class Migration(migrations.Migration):
    """Two columns without a value: no row is written anew."""

    dependencies = [("pgqueue", "0016_durable_steps")]

    operations = [
        migrations.AddField(
            "workflow",
            "version",
            models.CharField(
                blank=True, max_length=12, null=True, verbose_name="version"
            ),
        ),
        migrations.AddField(
            "workflow",
            "parent_id",
            models.BigIntegerField(blank=True, null=True, verbose_name="part of"),
        ),
        migrations.RunSQL(OLD_START + FUNCTIONS, FUNCTIONS_BACK),
    ]
