"""The key by which calls are accumulated, and the index that finds those that wait."""

from django.db import migrations, models


def _key(model_name: str) -> migrations.AddField:
    # Locks: ACCESS EXCLUSIVE for the moment that it takes; no row is written.
    return migrations.AddField(
        model_name=model_name,
        name="accumulate_key",
        field=models.CharField(
            blank=True, max_length=255, null=True, verbose_name="accumulate key"
        ),
    )


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0012_dedup")]

    operations = [
        _key("job"),
        _key("archivedjob"),
        _key("deadletter"),
        # Partial: a job without a key costs one look at a NULL, and nothing is
        # written. What is leased is not in it, so a run walks over nobody else's.
        # Locks: SHARE on the table while it is read once: enqueues and settles wait.
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(
                    ("accumulate_key__isnull", False), ("leased_by__isnull", True)
                ),
                fields=["accumulate_key", "task", "queue", "visible_at"],
                name="pgqueue_job_accumulate",
            ),
        ),
    ]
