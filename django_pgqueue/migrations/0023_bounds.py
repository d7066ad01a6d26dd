"""How many bytes a topic's log has, and may have."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Columns, of which nothing that is there takes notice."""

    dependencies = [("pgqueue", "0016_durable_steps")]

    operations = [
        migrations.AddField(
            "topic",
            "retain_bytes",
            models.BigIntegerField(blank=True, null=True, verbose_name="bytes kept"),
        ),
        migrations.AddField(
            "topic",
            "log_bytes",
            models.BigIntegerField(blank=True, null=True, verbose_name="bytes"),
        ),
        migrations.AddField(
            "topic",
            "log_bytes_at",
            models.DateTimeField(blank=True, null=True, verbose_name="measured at"),
        ),
        migrations.AddField(
            "logday",
            "topic_bytes",
            models.JSONField(blank=True, null=True, verbose_name="bytes of topics"),
        ),
    ]
