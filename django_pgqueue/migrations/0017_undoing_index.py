"""An index of the sagas that compensate."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Not concurrently: the table is as new as this."""

    dependencies = [
        ("pgqueue", "0016_durable_steps"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="workflow",
            index=models.Index(
                fields=["id"],
                name="pgqueue_workflow_undoing",
                condition=models.Q(state="compensating"),
            ),
        ),
    ]
