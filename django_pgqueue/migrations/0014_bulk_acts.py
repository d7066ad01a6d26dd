"""What people have asked to be done to everything that a filter means."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A table, of which nothing that is there takes notice."""

    dependencies = [
        ("pgqueue", "0013_task_spans"),
    ]

    operations = [
        migrations.CreateModel(
            name="BulkAct",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                (
                    "verb",
                    models.CharField(
                        choices=[
                            ("redrive", "redrive"),
                            ("retry", "retry now"),
                            ("set_aside", "set aside"),
                            ("cancel", "cancel"),
                        ],
                        max_length=9,
                        verbose_name="verb",
                    ),
                ),
                (
                    "filters",
                    models.JSONField(
                        db_default=models.Value({}, models.JSONField()),
                        verbose_name="filters",
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "waiting"),
                            ("running", "running"),
                            ("done", "done"),
                            ("stopped", "stopped"),
                            ("failed", "failed"),
                        ],
                        db_default="waiting",
                        max_length=7,
                        verbose_name="state",
                    ),
                ),
                ("asked_by", models.CharField(max_length=150, verbose_name="asked by")),
                ("reason", models.TextField(db_default="", verbose_name="reason")),
                (
                    "per_second",
                    models.IntegerField(
                        blank=True, null=True, verbose_name="at most per second"
                    ),
                ),
                ("counted", models.IntegerField(verbose_name="counted")),
                (
                    "is_more",
                    models.BooleanField(
                        db_default=False, verbose_name="more than counted"
                    ),
                ),
                ("top", models.BigIntegerField(verbose_name="highest id")),
                (
                    "position",
                    models.BigIntegerField(db_default=0, verbose_name="position"),
                ),
                ("done", models.IntegerField(db_default=0, verbose_name="done")),
                (
                    "passed",
                    models.IntegerField(db_default=0, verbose_name="passed over"),
                ),
                (
                    "shown_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="counted at",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="asked at",
                    ),
                ),
                (
                    "started_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="started at"
                    ),
                ),
                (
                    "next_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="next chunk",
                    ),
                ),
                (
                    "tries",
                    models.SmallIntegerField(db_default=0, verbose_name="failed tries"),
                ),
                (
                    "ended_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="ended at"
                    ),
                ),
                (
                    "stopped_by",
                    models.CharField(
                        db_default="", max_length=150, verbose_name="stopped by"
                    ),
                ),
                ("error", models.TextField(db_default="", verbose_name="error")),
            ],
            options={
                "verbose_name": "bulk act",
                "verbose_name_plural": "bulk acts",
                "db_table": "pgqueue_bulk_act",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        condition=models.Q(("state__in", ("waiting", "running"))),
                        fields=["next_at", "id"],
                        name="pgqueue_bulk_act_open",
                    ),
                    models.Index(fields=["ended_at"], name="pgqueue_bulk_act_ended"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                ["waiting", "running", "done", "stopped", "failed"],
                            )
                        ),
                        name="pgqueue_bulk_act_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("verb__in", ["redrive", "retry", "set_aside", "cancel"])
                        ),
                        name="pgqueue_bulk_act_verb",
                    ),
                ],
            },
        ),
    ]
