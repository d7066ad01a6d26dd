"""Lake: receipts of what was erased."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A table."""

    dependencies = [("pgqueue", "0029_label_hours")]

    operations = [
        migrations.CreateModel(
            name="Erasure",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                ("run_id", models.BigIntegerField(verbose_name="run")),
                (
                    "asked_by",
                    models.CharField(
                        blank=True, max_length=150, null=True, verbose_name="asked by"
                    ),
                ),
                ("path", models.CharField(max_length=200, verbose_name="path")),
                (
                    "task",
                    models.CharField(blank=True, max_length=255, verbose_name="task"),
                ),
                (
                    "value_hash",
                    models.CharField(max_length=64, verbose_name="hash of the value"),
                ),
                (
                    "archive_rows",
                    models.BigIntegerField(
                        db_default=0, verbose_name="rows of the archive"
                    ),
                ),
                (
                    "dead_letter_rows",
                    models.BigIntegerField(db_default=0, verbose_name="dead letters"),
                ),
                (
                    "exports",
                    models.JSONField(
                        db_default=models.Value([], models.JSONField()),
                        verbose_name="exports",
                    ),
                ),
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
                    "finished_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="finished at"
                    ),
                ),
            ],
            options={
                "verbose_name": "erasure",
                "verbose_name_plural": "erasures",
                "db_table": "pgqueue_erasure",
                "default_permissions": ("view",),
            },
        ),
    ]
