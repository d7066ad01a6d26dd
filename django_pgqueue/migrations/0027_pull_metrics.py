"""What ends in pull queues is counted, whatever client has ended it."""

from pathlib import Path

from django.db import migrations

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")


def of(migration: str, name: str) -> str:
    """Return a function as an earlier migration made it."""
    text = Path(__file__).with_name(f"{migration}.sql").read_text("utf-8")
    return text.partition(f"-- {name}.sql\n")[2].partition("\n-- ")[0]


# What the leader has not counted yet. UNLOGGED: it costs no WAL, and a crash of the
# server forgets it, as a crash of a worker forgets what that has not added.
ENDS = """
CREATE UNLOGGED TABLE pgqueue_pull_end (
    outcome varchar(10) NOT NULL,
    ended_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    queues varchar(63)[] NOT NULL,
    waits real[] NOT NULL,
    runs real[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX pgqueue_pull_end_at ON pgqueue_pull_end (ended_at)
"""
ENDS_BACK = "DROP TABLE pgqueue_pull_end"

FUNCTIONS_BACK = (
    "DROP FUNCTION pgqueue_unread(bigint, integer, bigint, timestamptz);\n"
    + of("0025_repartition", "read")
    + of("0020_pull", "pull_receipts")
    + of("0020_pull", "pull_answer")
    + of("0020_pull", "pull_archive")
    + of("0020_pull", "pull_bury")
    + of("0020_pull", "nack")
    + of("0020_pull", "receive")
    + of("0025_repartition", "pins")
)


class Migration(migrations.Migration):
    """A table of which nothing that is there takes notice, before who writes it."""

    dependencies = [("pgqueue", "0026_stream")]

    operations = [
        migrations.RunSQL(ENDS, ENDS_BACK),
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
        migrations.AlterModelOptions(
            name="job",
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "default_permissions": ("view",),
                "permissions": [
                    ("view_payload", "Can see arguments, results and tracebacks"),
                    ("view_mail_body", "Can see bodies and files of mails"),
                    ("retry", "Can retry jobs and redrive dead letters"),
                    ("edit", "Can edit the arguments of a job"),
                    ("send", "Can send and publish messages"),
                    ("cancel", "Can cancel jobs"),
                    ("purge", "Can delete finished jobs and dead letters"),
                    ("pause", "Can pause and resume queues and schedules"),
                    ("run_schedule", "Can run a schedule now"),
                    ("seek", "Can move the position of a consumer group"),
                    ("run_pipeline", "Can run and stop pipeline jobs"),
                ],
            },
        ),
    ]
