"""Reading a log in any language, and replaying it."""

from pathlib import Path

from django.db import migrations, models
from django.db.models import Q

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")
FUNCTIONS_BACK = "DROP FUNCTION pgqueue_read, pgqueue_commit_position;\n"

# What an older version does not know it cannot do.
ENDED = "DELETE FROM pgqueue_bulk_act WHERE verb = 'replay';\n"

VERBS = [
    ("redrive", "redrive"),
    ("retry", "retry now"),
    ("set_aside", "set aside"),
    ("cancel", "cancel"),
    ("replay", "replay"),
]


class Migration(migrations.Migration):
    """Two functions, which no other one calls, and a verb of bulk acts."""

    dependencies = [("pgqueue", "0021_pull_index")]

    operations = [
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
        migrations.AlterField(
            "bulkact",
            "verb",
            models.CharField(choices=VERBS, max_length=9, verbose_name="verb"),
        ),
        migrations.RemoveConstraint("bulkact", "pgqueue_bulk_act_verb"),
        migrations.AddConstraint(
            "bulkact",
            models.CheckConstraint(
                name="pgqueue_bulk_act_verb",
                condition=Q(verb__in=[verb for verb, _ in VERBS]),
            ),
        ),
        migrations.RunSQL(migrations.RunSQL.noop, ENDED),
    ]
