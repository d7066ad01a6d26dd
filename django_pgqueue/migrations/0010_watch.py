"""What is wrong, found by a function of the database and said once."""

from pathlib import Path

from django.db import migrations, models
from django.db.models import Q

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")


class Migration(migrations.Migration):
    """A table and a function, of which nothing that is there takes notice."""

    dependencies = [("pgqueue", "0009_subscription_lanes")]

    operations = [
        migrations.CreateModel(
            name="Alert",
            fields=[
                (
                    "name",
                    models.CharField(
                        max_length=300,
                        primary_key=True,
                        serialize=False,
                        verbose_name="name",
                    ),
                ),
                ("kind", models.CharField(max_length=20, verbose_name="kind")),
                ("subject", models.CharField(max_length=275, verbose_name="subject")),
                ("count", models.IntegerField(verbose_name="count")),
                ("detail", models.TextField(verbose_name="detail")),
                ("began_at", models.DateTimeField(verbose_name="began at")),
                ("said_at", models.DateTimeField(verbose_name="said at")),
                ("said_count", models.IntegerField(verbose_name="said count")),
                (
                    "ended_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="ended at"
                    ),
                ),
            ],
            options={
                "verbose_name": "alert",
                "verbose_name_plural": "alerts",
                "db_table": "pgqueue_alert",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["said_at"], name="pgqueue_alert_said"),
                    models.Index(
                        condition=Q(ended_at__isnull=True),
                        fields=["began_at"],
                        name="pgqueue_alert_standing",
                    ),
                ],
            },
        ),
        migrations.RunSQL(FUNCTIONS, "DROP FUNCTION pgqueue_watch"),
    ]
