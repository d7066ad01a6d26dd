"""Capture: what the triggers call that CaptureChanges() makes."""

from pathlib import Path

from django.db import migrations

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")

# Without CASCADE: tables that are captured still want it.
FUNCTIONS_BACK = "DROP FUNCTION pgqueue_capture, pgqueue_capture_less"


class Migration(migrations.Migration):
    """Two functions, of which nothing that is there takes notice."""

    dependencies = [
        ("pgqueue", "0018_workflow_indexes"),
    ]

    operations = [
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
    ]
