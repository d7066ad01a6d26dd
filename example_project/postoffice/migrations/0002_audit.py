import django.db.models.deletion
from django.db import migrations, models

from django_pgqueue.operations import CaptureChanges


class Migration(migrations.Migration):
    dependencies = [
        ("pgqueue", "0002_log"),
        ("postoffice", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="MailChange",
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
                ("at", models.DateTimeField()),
                ("before", models.CharField(max_length=9)),
                ("after", models.CharField(max_length=9)),
                ("error", models.TextField(blank=True, default="")),
                (
                    "actor",
                    models.CharField(blank=True, default="", max_length=255),
                ),
                (
                    "mail",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="changes",
                        to="postoffice.emailmessage",
                    ),
                ),
            ],
            options={"verbose_name": "change"},
        ),
        CaptureChanges(
            "postoffice.EmailMessage",
            topic="mailaudit",
            on=["update"],
            fields=["status", "error"],
        ),
    ]
