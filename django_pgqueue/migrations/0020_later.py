"""What has come in from outside, once; and what is published later."""

from pathlib import Path

from django.db import migrations, models

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")

CLOCK = models.Func(
    function="clock_timestamp",
    output_field=models.DateTimeField(),
    template="%(function)s()",
)


class Migration(migrations.Migration):
    """Two tables, of which nothing that is there takes notice."""

    dependencies = [("pgqueue", "0016_durable_steps")]

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
        migrations.RunSQL(FUNCTIONS, "DROP FUNCTION pgqueue_inbox"),
    ]
