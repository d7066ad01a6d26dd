"""The manifest of what was exported: a row for each day and place."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """It can be taken back."""

    dependencies = [
        ("pgqueue", "0009_spark_write"),
    ]

    operations = [
        migrations.CreateModel(
            name="Export",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                ("target", models.CharField(max_length=900, verbose_name="target")),
                ("day", models.DateField(verbose_name="day")),
                ("format", models.CharField(max_length=7, verbose_name="format")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("writing", "writing"),
                            ("publishing", "publishing"),
                            ("exported", "exported"),
                            ("stale", "stale"),
                        ],
                        db_default="writing",
                        max_length=10,
                        verbose_name="state",
                    ),
                ),
                (
                    "rows",
                    models.BigIntegerField(blank=True, null=True, verbose_name="rows"),
                ),
                (
                    "checksum",
                    models.CharField(
                        blank=True, max_length=40, null=True, verbose_name="checksum"
                    ),
                ),
                (
                    "content",
                    models.CharField(
                        blank=True, max_length=40, null=True, verbose_name="content"
                    ),
                ),
                (
                    "files",
                    models.JSONField(
                        db_default=models.Value([], models.JSONField()),
                        verbose_name="files",
                    ),
                ),
                (
                    "version",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="version"
                    ),
                ),
                (
                    "exported_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="exported at"
                    ),
                ),
                ("run_id", models.BigIntegerField(verbose_name="run")),
                (
                    "started_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="started at",
                    ),
                ),
                (
                    "error",
                    models.TextField(blank=True, null=True, verbose_name="error"),
                ),
            ],
            options={
                "verbose_name": "export",
                "verbose_name_plural": "exports",
                "db_table": "pgqueue_export",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("target", "day"), name="pgqueue_export_key"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                ["writing", "publishing", "exported", "stale"],
                            )
                        ),
                        name="pgqueue_export_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "exported"), _negated=True),
                            models.Q(
                                ("checksum__isnull", False),
                                ("exported_at__isnull", False),
                                ("rows__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="pgqueue_export_exported_is_counted",
                    ),
                ],
            },
        ),
    ]
