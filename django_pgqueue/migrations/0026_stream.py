"""What tasks emit while they run."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A table, of which nothing that is there takes notice."""

    dependencies = [("pgqueue", "0025_repartition")]

    operations = [
        migrations.CreateModel(
            name="Output",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "job_id",
                        "sequence",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("job_id", models.BigIntegerField(verbose_name="job")),
                ("sequence", models.BigIntegerField(verbose_name="sequence")),
                ("attempt", models.IntegerField(verbose_name="attempt")),
                ("value", models.JSONField(verbose_name="value")),
                (
                    "emitted_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="emitted at",
                    ),
                ),
            ],
            options={
                "verbose_name": "output",
                "verbose_name_plural": "outputs",
                "db_table": "pgqueue_output",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["emitted_at"], name="pgqueue_output_old"),
                ],
            },
        ),
    ]
