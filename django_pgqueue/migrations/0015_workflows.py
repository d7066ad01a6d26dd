"""Workflows: steps that come after one another, advanced where jobs end."""

from pathlib import Path

from django.db import migrations, models

from django_pgqueue.models.columns import IdArray

# Functions as django_pgqueue/sql/ had them; later changes come in later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")

# A step's row changes when it starts and when it ends, in no indexed column: with room
# on its page, no index is written, and none has several entries of a step.
ROOM = """
ALTER TABLE pgqueue_step SET (fillfactor = 50);
ALTER TABLE pgqueue_workflow SET (fillfactor = 50);
"""

FUNCTIONS_BACK = """
DROP TRIGGER pgqueue_jobs_gone ON pgqueue_job;
DROP TRIGGER pgqueue_letters_gone ON pgqueue_dead_letter;
DROP FUNCTION pgqueue_jobs_gone, pgqueue_letters_gone, pgqueue_steps_ended,
    pgqueue_start_workflow, pgqueue_add_steps, pgqueue_close_workflow,
    pgqueue_restart_workflow,
    pgqueue_insert_steps, pgqueue_advance, pgqueue_compensate, pgqueue_start_steps,
    pgqueue_store_steps, pgqueue_meets, pgqueue_failure_of, pgqueue_results_of;
"""


class Migration(migrations.Migration):
    """Two tables, and two triggers, of which jobs of no workflow take no notice."""

    dependencies = [
        ("pgqueue", "0014_bulk_acts"),
    ]

    operations = [
        migrations.CreateModel(
            name="Step",
            fields=[
                (
                    "id",
                    models.BigIntegerField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                ("workflow_id", models.BigIntegerField(verbose_name="workflow")),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                ("kind", models.CharField(max_length=12, verbose_name="kind")),
                (
                    "task",
                    models.CharField(
                        blank=True, max_length=255, null=True, verbose_name="task"
                    ),
                ),
                ("job", models.JSONField(blank=True, null=True, verbose_name="job")),
                ("after", IdArray(verbose_name="after")),
                ("next", IdArray(verbose_name="next")),
                ("waits", models.IntegerField(verbose_name="waits")),
                (
                    "takes",
                    models.CharField(
                        blank=True, max_length=10, null=True, verbose_name="takes"
                    ),
                ),
                (
                    "fills",
                    models.JSONField(blank=True, null=True, verbose_name="fills"),
                ),
                (
                    "condition",
                    models.JSONField(blank=True, null=True, verbose_name="condition"),
                ),
                (
                    "compensates",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="compensates"
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "waiting"),
                            ("started", "started"),
                            ("succeeded", "succeeded"),
                            ("dead", "dead"),
                            ("cancelled", "cancelled"),
                            ("expired", "expired"),
                            ("skipped", "skipped"),
                        ],
                        max_length=9,
                        verbose_name="state",
                    ),
                ),
                (
                    "result",
                    models.JSONField(blank=True, null=True, verbose_name="result"),
                ),
                (
                    "error",
                    models.JSONField(blank=True, null=True, verbose_name="error"),
                ),
                (
                    "started_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="started at"
                    ),
                ),
                (
                    "finished_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="finished at"
                    ),
                ),
            ],
            options={
                "verbose_name": "step",
                "verbose_name_plural": "steps",
                "db_table": "pgqueue_step",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        fields=["workflow_id", "id"], name="pgqueue_step_workflow"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Workflow",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                (
                    "key",
                    models.CharField(
                        blank=True, max_length=255, null=True, verbose_name="key"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("canvas", "canvas"),
                            ("batch", "batch"),
                            ("flow", "flow"),
                            ("saga", "saga"),
                        ],
                        max_length=6,
                        verbose_name="kind",
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("running", "running"),
                            ("succeeded", "succeeded"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                            ("compensating", "compensating"),
                            ("compensated", "compensated"),
                        ],
                        db_default="running",
                        max_length=12,
                        verbose_name="state",
                    ),
                ),
                ("steps", models.IntegerField(verbose_name="steps")),
                ("active", models.IntegerField(db_default=0, verbose_name="active")),
                (
                    "succeeded",
                    models.IntegerField(db_default=0, verbose_name="succeeded"),
                ),
                ("skipped", models.IntegerField(db_default=0, verbose_name="skipped")),
                ("dead", models.IntegerField(db_default=0, verbose_name="dead")),
                (
                    "cancelled",
                    models.IntegerField(db_default=0, verbose_name="cancelled"),
                ),
                ("ends", IdArray(blank=True, null=True, verbose_name="ends")),
                (
                    "is_list",
                    models.BooleanField(db_default=False, verbose_name="is list"),
                ),
                (
                    "is_open",
                    models.BooleanField(db_default=False, verbose_name="is open"),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="created at",
                    ),
                ),
                (
                    "finished_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="finished at"
                    ),
                ),
                (
                    "cancel_requested_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="cancel requested at"
                    ),
                ),
                (
                    "deadline_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="deadline at"
                    ),
                ),
                (
                    "is_overdue",
                    models.BooleanField(db_default=False, verbose_name="is overdue"),
                ),
                (
                    "restarted_from",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="restarted from"
                    ),
                ),
            ],
            options={
                "verbose_name": "workflow",
                "verbose_name_plural": "workflows",
                "db_table": "pgqueue_workflow",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        condition=models.Q(("finished_at__isnull", False)),
                        fields=["finished_at"],
                        name="pgqueue_workflow_finished",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("deadline_at__isnull", False), ("state", "running")
                        ),
                        fields=["deadline_at"],
                        name="pgqueue_workflow_deadline",
                    ),
                    models.Index(
                        condition=models.Q(("state", "compensating")),
                        fields=["id"],
                        name="pgqueue_workflow_undoing",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("name", "key", "kind"), name="pgqueue_workflow_key"
                    )
                ],
            },
        ),
        migrations.RunSQL(ROOM, migrations.RunSQL.noop),
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
    ]
