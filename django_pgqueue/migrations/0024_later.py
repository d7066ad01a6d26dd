"""What has come in from outside, once; and what is published later."""

from pathlib import Path

from django.db import migrations, models

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")

# It has a parameter more.
PUBLISH = "DROP FUNCTION pgqueue_publish(text, jsonb, text, jsonb{});\n"
FUNCTIONS = PUBLISH.format("") + FUNCTIONS


def of(migration: str, name: str) -> str:
    """Return a function as an earlier migration made it."""
    text = Path(__file__).with_name(f"{migration}.sql").read_text("utf-8")
    return text.partition(f"-- {name}.sql\n")[2].partition("\n-- ")[0]


FUNCTIONS_BACK = (
    PUBLISH.format(", timestamptz")
    + "DROP FUNCTION pgqueue_inbox, pgqueue_schedule_messages;\n"
    + "ALTER TABLE pgqueue_scheduled_message"
    " DROP CONSTRAINT pgqueue_scheduled_is_sound;\n"
    + of("0023_bounds", "publish")
    + of("0023_bounds", "pins")
)

CLOCK = models.Func(
    function="clock_timestamp",
    output_field=models.DateTimeField(),
    template="%(function)s()",
)


class Migration(migrations.Migration):
    """Two tables, of which nothing that is there takes notice."""

    dependencies = [("pgqueue", "0023_bounds")]

    operations = [
        migrations.CreateModel(
            name="InboxEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                ("source", models.CharField(max_length=63, verbose_name="source")),
                (
                    "external_id",
                    models.CharField(max_length=512, verbose_name="external id"),
                ),
                (
                    "received_at",
                    models.DateTimeField(db_default=CLOCK, verbose_name="received at"),
                ),
            ],
            options={
                "verbose_name": "inbox entry",
                "verbose_name_plural": "inbox",
                "db_table": "pgqueue_inbox",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["received_at"], name="pgqueue_inbox_old")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("source", "external_id"), name="pgqueue_inbox_once"
                    ),
                    models.CheckConstraint(
                        condition=~models.Q(source="") & ~models.Q(external_id=""),
                        name="pgqueue_inbox_named",
                    ),
                ],
            },
        ),
        migrations.RunSQL(
            "CREATE SEQUENCE pgqueue_scheduled_message_id_seq AS bigint",
            "DROP SEQUENCE pgqueue_scheduled_message_id_seq",
        ),
        migrations.CreateModel(
            name="ScheduledMessage",
            fields=[
                (
                    "id",
                    models.BigIntegerField(
                        db_default=models.Func(
                            function="nextval",
                            output_field=models.BigIntegerField(),
                            template="-%(function)s("
                            "'pgqueue_scheduled_message_id_seq')",
                        ),
                        primary_key=True,
                        serialize=False,
                        verbose_name="id",
                    ),
                ),
                ("topic", models.CharField(max_length=63, verbose_name="topic")),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                (
                    "key",
                    models.CharField(
                        blank=True, max_length=1000, null=True, verbose_name="key"
                    ),
                ),
                ("payload", models.JSONField(verbose_name="payload")),
                (
                    "headers",
                    models.JSONField(
                        db_default=models.Value({}, models.JSONField()),
                        verbose_name="headers",
                    ),
                ),
                ("run_after", models.DateTimeField(verbose_name="run after")),
                ("due_at", models.DateTimeField(verbose_name="due at")),
                (
                    "failures",
                    models.SmallIntegerField(db_default=0, verbose_name="failures"),
                ),
                (
                    "error",
                    models.TextField(blank=True, null=True, verbose_name="error"),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=CLOCK, verbose_name="created at"),
                ),
            ],
            options={
                "verbose_name": "scheduled message",
                "verbose_name_plural": "scheduled messages",
                "db_table": "pgqueue_scheduled_message",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["due_at", "-id"], name="pgqueue_scheduled_due")
                ],
            },
        ),
        migrations.RunSQL(
            "ALTER SEQUENCE pgqueue_scheduled_message_id_seq"
            " OWNED BY pgqueue_scheduled_message.id",
            "ALTER SEQUENCE pgqueue_scheduled_message_id_seq OWNED BY NONE",
        ),
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
    ]
