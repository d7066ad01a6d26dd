"""Schedules and their ticks."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """It can be taken back."""

    dependencies = [
        ("pgqueue", "0010_export"),
    ]

    operations = [
        migrations.CreateModel(
            name="Schedule",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                (
                    "name",
                    models.CharField(max_length=255, unique=True, verbose_name="name"),
                ),
                (
                    "source",
                    models.CharField(
                        choices=[("code", "code"), ("user", "user")],
                        db_default="user",
                        max_length=4,
                        verbose_name="source",
                    ),
                ),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                (
                    "args",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value([], models.JSONField()),
                        verbose_name="positional arguments",
                    ),
                ),
                (
                    "kwargs",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value({}, models.JSONField()),
                        verbose_name="keyword arguments",
                    ),
                ),
                (
                    "queue",
                    models.CharField(
                        blank=True, max_length=63, null=True, verbose_name="queue"
                    ),
                ),
                (
                    "priority",
                    models.SmallIntegerField(
                        blank=True, null=True, verbose_name="priority"
                    ),
                ),
                (
                    "expression",
                    models.CharField(
                        blank=True,
                        max_length=255,
                        null=True,
                        verbose_name="cron expression",
                    ),
                ),
                (
                    "every_seconds",
                    models.IntegerField(
                        blank=True, null=True, verbose_name="every, in seconds"
                    ),
                ),
                (
                    "tz",
                    models.CharField(
                        db_default="UTC", max_length=100, verbose_name="time zone"
                    ),
                ),
                (
                    "catch_up",
                    models.CharField(
                        db_default="one", max_length=10, verbose_name="catch up"
                    ),
                ),
                (
                    "overlap",
                    models.CharField(
                        choices=[("skip", "skip"), ("queue", "queue")],
                        db_default="skip",
                        max_length=5,
                        verbose_name="overlap",
                    ),
                ),
                (
                    "jitter_seconds",
                    models.IntegerField(
                        db_default=0, verbose_name="jitter, in seconds"
                    ),
                ),
                (
                    "declared",
                    models.JSONField(blank=True, null=True, verbose_name="declared"),
                ),
                (
                    "last_declared_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="last declared at"
                    ),
                ),
                (
                    "withdrawn_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="withdrawn at"
                    ),
                ),
                (
                    "overridden_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="overridden at"
                    ),
                ),
                (
                    "overridden_by",
                    models.CharField(
                        blank=True,
                        max_length=150,
                        null=True,
                        verbose_name="overridden by",
                    ),
                ),
                (
                    "paused_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="paused at"
                    ),
                ),
                (
                    "paused_by",
                    models.CharField(
                        blank=True, max_length=150, null=True, verbose_name="paused by"
                    ),
                ),
                (
                    "pause_reason",
                    models.TextField(
                        blank=True, null=True, verbose_name="pause reason"
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
                        verbose_name="created at",
                    ),
                ),
                (
                    "created_by",
                    models.CharField(
                        blank=True, max_length=150, null=True, verbose_name="created by"
                    ),
                ),
                (
                    "revision",
                    models.IntegerField(db_default=0, verbose_name="revision"),
                ),
                (
                    "ticks_from",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="ticks from",
                    ),
                ),
                (
                    "last_tick",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="last tick"
                    ),
                ),
                (
                    "next_tick",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="next tick"
                    ),
                ),
                (
                    "error",
                    models.TextField(blank=True, null=True, verbose_name="error"),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "db_table": "pgqueue_schedule",
                "default_permissions": ("add", "change", "delete", "view"),
            },
        ),
        migrations.CreateModel(
            name="Tick",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                ("schedule_id", models.BigIntegerField(verbose_name="schedule")),
                ("due_at", models.DateTimeField(verbose_name="due at")),
                (
                    "ticked_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="ticked at",
                    ),
                ),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("enqueued", "enqueued"),
                            ("overlap", "skipped: the one before was not done"),
                            ("duplicate", "skipped: its dedup key is held"),
                            ("missed", "missed"),
                        ],
                        db_default="enqueued",
                        max_length=9,
                        verbose_name="outcome",
                    ),
                ),
                (
                    "job_id",
                    models.BigIntegerField(blank=True, null=True, verbose_name="job"),
                ),
                (
                    "missed",
                    models.SmallIntegerField(
                        db_default=0, verbose_name="missed before"
                    ),
                ),
                (
                    "asked_by",
                    models.CharField(
                        blank=True, max_length=150, null=True, verbose_name="asked by"
                    ),
                ),
            ],
            options={
                "verbose_name": "tick",
                "verbose_name_plural": "ticks",
                "db_table": "pgqueue_tick",
                "default_permissions": ("view",),
            },
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("schedule_id__isnull", False)),
                fields=["schedule_id"],
                name="pgqueue_job_schedule",
            ),
        ),
        migrations.AddIndex(
            model_name="schedule",
            index=models.Index(
                condition=models.Q(
                    ("paused_at__isnull", True), ("withdrawn_at__isnull", True)
                ),
                fields=["next_tick"],
                name="pgqueue_schedule_next",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("every_seconds__isnull", True), ("expression__isnull", False)
                    ),
                    models.Q(("every_seconds__gte", 1), ("expression__isnull", True)),
                    _connector="OR",
                ),
                name="pgqueue_schedule_timetable",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("declared__isnull", False), ("source", "code")),
                    models.Q(("declared__isnull", True), ("source", "user")),
                    _connector="OR",
                ),
                name="pgqueue_schedule_source",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("overlap__in", ["skip", "queue"])),
                name="pgqueue_schedule_overlap",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("jitter_seconds__gte", 0)),
                name="pgqueue_schedule_jitter",
            ),
        ),
        migrations.AddConstraint(
            model_name="tick",
            constraint=models.UniqueConstraint(
                fields=("schedule_id", "due_at"), name="pgqueue_tick_key"
            ),
        ),
        migrations.AddConstraint(
            model_name="tick",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("outcome__in", ["enqueued", "overlap", "duplicate", "missed"])
                ),
                name="pgqueue_tick_outcome",
            ),
        ),
    ]
