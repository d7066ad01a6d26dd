"""Reading a log in any language."""

from pathlib import Path

from django.db import migrations

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")
FUNCTIONS_BACK = "DROP FUNCTION pgqueue_read, pgqueue_commit_position;\n"


class Migration(migrations.Migration):
    """Two functions, which no other one calls."""

    dependencies = [("pgqueue", "0016_durable_steps")]

    operations = [migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK)]
