"""Files of mails, each kept once."""

from django.db import migrations, models

LOOK_AT = ("look_at", models.DateTimeField(verbose_name="look at"))


class Migration(migrations.Migration):
    """Two tables, of which nothing that is there takes notice."""

    dependencies = [("pgqueue", "0011_view_mail_body")]

    operations = [
        migrations.CreateModel(
            name="MailFile",
            fields=[
                (
                    "digest",
                    models.CharField(
                        max_length=64,
                        primary_key=True,
                        serialize=False,
                        verbose_name="digest",
                    ),
                ),
                ("data", models.BinaryField(verbose_name="data")),
                LOOK_AT,
            ],
            options={
                "verbose_name": "file of mails",
                "verbose_name_plural": "files of mails",
                "db_table": "pgqueue_mail_file",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["look_at"], name="pgqueue_mail_file_look")
                ],
            },
        ),
        migrations.CreateModel(
            name="MailFileUse",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "digest",
                        "job_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("digest", models.CharField(max_length=64, verbose_name="digest")),
                ("job_id", models.BigIntegerField(verbose_name="job")),
                LOOK_AT,
            ],
            options={
                "verbose_name": "use of a file of mails",
                "verbose_name_plural": "uses of files of mails",
                "db_table": "pgqueue_mail_file_use",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["look_at"], name="pgqueue_mail_file_use_look")
                ],
            },
        ),
    ]
