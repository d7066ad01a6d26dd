"""How many coroutines a worker runs at once, for people to see."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("pgqueue", "0003_tags")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="async_slots",
            field=models.IntegerField(db_default=0, verbose_name="async slots"),
        ),
    ]
