"""What failures are by the hour, and whether every job that was seen is somewhere."""

from django.db import migrations, models
from django.db.models.expressions import CombinedExpression


class Migration(migrations.Migration):
    """Two columns with a default, and a table of which nobody takes notice yet."""

    dependencies = [("pgqueue", "0027_pull_metrics")]

    operations = [
        migrations.AddField(
            model_name="failurehour",
            name="dead_letters",
            field=models.BigIntegerField(db_default=0, verbose_name="dead letters"),
        ),
        migrations.AddField(
            model_name="failurehour",
            name="jobs",
            field=models.BigIntegerField(db_default=0, verbose_name="jobs"),
        ),
        migrations.CreateModel(
            name="EnqueuedHour",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "hour",
                        "queue",
                        "task",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("hour", models.DateTimeField(verbose_name="hour")),
                ("queue", models.CharField(max_length=63, verbose_name="queue")),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                ("enqueued", models.BigIntegerField(verbose_name="enqueued")),
                ("waiting", models.BigIntegerField(verbose_name="waiting")),
                ("archived", models.BigIntegerField(verbose_name="archived")),
                ("dead", models.BigIntegerField(verbose_name="dead")),
                (
                    "computed_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="computed at",
                    ),
                ),
            ],
            options={
                "verbose_name": "hour of enqueued jobs",
                "verbose_name_plural": "hours of enqueued jobs",
                "db_table": "pgqueue_enqueued_hour",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        condition=models.Q(
                            (
                                "enqueued__gt",
                                CombinedExpression(
                                    CombinedExpression(
                                        models.F("waiting"), "+", models.F("archived")
                                    ),
                                    "+",
                                    models.F("dead"),
                                ),
                            )
                        ),
                        fields=["hour"],
                        name="pgqueue_enqueued_hour_missing",
                    )
                ],
            },
        ),
    ]
