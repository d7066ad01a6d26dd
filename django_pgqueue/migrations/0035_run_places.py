"""
Runs of one pipeline job beside each other, where each has places of its own.

A run that is live while this is applied has the whole job, as before. Releases before
cannot begin runs after it: their statement needs the index that goes.
"""

from django.db import migrations, models

from django_pgqueue.models.columns import TextArray


class Migration(migrations.Migration):
    """A column with a constant default, and an index of live runs: a few rows."""

    dependencies = [("pgqueue", "0034_erase_messages")]

    operations = [
        migrations.AddField(
            model_name="pipelinerun",
            name="places",
            field=TextArray(db_default="{}", verbose_name="places"),
        ),
        migrations.RemoveConstraint(
            model_name="pipelinerun", name="pgqueue_pipeline_run_live"
        ),
        migrations.AddIndex(
            model_name="pipelinerun",
            index=models.Index(
                condition=models.Q(("state", "running")),
                fields=["job"],
                name="pgqueue_pipeline_run_live",
            ),
        ),
    ]
