"""How many jobs a queue with a limit holds, for those who enqueue."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Two columns without a value: no row is written anew."""

    dependencies = [("pgqueue", "0005_lane_indexes")]

    operations = [
        migrations.AddField(
            model_name="queue",
            name="depth",
            field=models.IntegerField(blank=True, null=True, verbose_name="depth"),
        ),
        migrations.AddField(
            model_name="queue",
            name="depth_at",
            field=models.DateTimeField(
                blank=True, null=True, verbose_name="depth counted at"
            ),
        ),
    ]
