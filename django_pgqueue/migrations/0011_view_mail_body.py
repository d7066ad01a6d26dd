"""A permission for the bodies of mails: only Django's own tables change."""

from django.db import migrations


class Migration(migrations.Migration):
    """No SQL."""

    dependencies = [("pgqueue", "0010_watch")]

    operations = [
        migrations.AlterModelOptions(
            name="job",
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "default_permissions": ("view",),
                "permissions": [
                    ("view_payload", "Can see arguments, results and tracebacks"),
                    ("view_mail_body", "Can see bodies and files of mails"),
                    ("retry", "Can retry jobs and redrive dead letters"),
                    ("edit", "Can edit the arguments of a job"),
                    ("cancel", "Can cancel jobs"),
                    ("purge", "Can delete finished jobs and dead letters"),
                    ("pause", "Can pause and resume queues and schedules"),
                    ("run_schedule", "Can run a schedule now"),
                    ("seek", "Can move the position of a consumer group"),
                    ("run_pipeline", "Can run and stop pipeline jobs"),
                ],
            },
        )
    ]
