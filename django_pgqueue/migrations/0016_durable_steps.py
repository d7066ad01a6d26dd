"""What a task has done within one job, and what it waits for."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Two tables, of which nothing that is there takes notice."""

    dependencies = [
        ("pgqueue", "0015_workflows"),
    ]

    operations = [
        migrations.CreateModel(
            name="DurableStep",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "job_id",
                        "place",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("job_id", models.BigIntegerField(verbose_name="job")),
                ("place", models.IntegerField(verbose_name="place")),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                ("kind", models.CharField(max_length=5, verbose_name="kind")),
                (
                    "result",
                    models.JSONField(blank=True, null=True, verbose_name="result"),
                ),
                (
                    "key",
                    models.CharField(db_default="", max_length=255, verbose_name="key"),
                ),
                (
                    "until",
                    models.DateTimeField(blank=True, null=True, verbose_name="until"),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="created at",
                    ),
                ),
                (
                    "done_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="done at"),
                ),
            ],
            options={
                "verbose_name": "durable step",
                "verbose_name_plural": "durable steps",
                "db_table": "pgqueue_durable_step",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        condition=models.Q(("done_at__isnull", True), ("kind", "wait")),
                        fields=["name", "key"],
                        name="pgqueue_durable_step_wait",
                    ),
                    models.Index(
                        fields=["created_at"], name="pgqueue_durable_step_old"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Signal",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                (
                    "key",
                    models.CharField(db_default="", max_length=255, verbose_name="key"),
                ),
                (
                    "payload",
                    models.JSONField(blank=True, null=True, verbose_name="payload"),
                ),
                (
                    "sent_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="sent at",
                    ),
                ),
            ],
            options={
                "verbose_name": "signal",
                "verbose_name_plural": "signals",
                "db_table": "pgqueue_signal",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        fields=["name", "key", "id"], name="pgqueue_signal_name"
                    ),
                    models.Index(fields=["sent_at"], name="pgqueue_signal_old"),
                ],
            },
        ),
    ]
