"""What jobs took by tag and by lane, hour by hour."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A table, empty until the pipeline job metrics runs."""

    dependencies = [("pgqueue", "0028_task_hours")]

    operations = [
        migrations.CreateModel(
            name="LabelHour",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "hour",
                        "queue",
                        "kind",
                        "label",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("hour", models.DateTimeField(verbose_name="hour")),
                ("queue", models.CharField(max_length=63, verbose_name="queue")),
                (
                    "kind",
                    models.CharField(
                        choices=[("tag", "tag"), ("lane", "lane")],
                        max_length=4,
                        verbose_name="kind",
                    ),
                ),
                ("label", models.CharField(max_length=255, verbose_name="label")),
                ("jobs", models.BigIntegerField(verbose_name="jobs")),
                ("worker_seconds", models.FloatField(verbose_name="worker seconds")),
            ],
            options={
                "verbose_name": "hour of a label",
                "verbose_name_plural": "hours of labels",
                "db_table": "pgqueue_label_hour",
                "default_permissions": (),
            },
        ),
    ]
