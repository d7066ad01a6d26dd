"""What ended, counted by workers by task, queue and span of time."""

from django.db import migrations, models

from django_pgqueue.models.task_span import CountArray


class Migration(migrations.Migration):
    """A table of which nothing that is there takes notice."""

    dependencies = [("pgqueue", "0012_mail_files")]

    operations = [
        migrations.CreateModel(
            name="TaskSpan",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "seconds",
                        "since",
                        "queue",
                        "task",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("seconds", models.IntegerField(verbose_name="seconds")),
                ("since", models.DateTimeField(verbose_name="since")),
                ("queue", models.CharField(max_length=63, verbose_name="queue")),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                ("succeeded", models.BigIntegerField(verbose_name="succeeded")),
                ("failed", models.BigIntegerField(verbose_name="failed")),
                ("dead", models.BigIntegerField(verbose_name="dead")),
                ("cancelled", models.BigIntegerField(verbose_name="cancelled")),
                ("expired", models.BigIntegerField(verbose_name="expired")),
                ("wait_seconds", models.FloatField(verbose_name="wait seconds")),
                ("run_seconds", models.FloatField(verbose_name="run seconds")),
                ("waits", CountArray(verbose_name="waits")),
                ("runs", CountArray(verbose_name="runs")),
            ],
            options={
                "verbose_name": "span of a task",
                "verbose_name_plural": "spans of tasks",
                "db_table": "pgqueue_task_span",
                "default_permissions": (),
            },
        ),
    ]
