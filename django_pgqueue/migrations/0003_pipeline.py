"""Runs of pipeline jobs and what they found, manifests of files, writes from Spark."""

from django.db import migrations, models

NOW = models.Func(
    function="clock_timestamp",
    template="%(function)s()",
    output_field=models.DateTimeField(),
)

# One row for each write, made by the first of its tasks. While it is open, everything
# that the write has stored can be thrown away; once it is committing, nothing can.
# The name, where the caller gave one, is taken until the write is rolled back.
SPARK_WRITES = """
CREATE TABLE pgqueue_spark_write (
    id uuid PRIMARY KEY,
    name varchar(100),
    mode varchar(9) NOT NULL
        CONSTRAINT pgqueue_spark_write_mode CHECK (mode IN ('staged', 'two-phase')),
    state varchar(11) NOT NULL DEFAULT 'open'
        CONSTRAINT pgqueue_spark_write_state
        CHECK (state IN ('open', 'committing', 'committed', 'rolled_back')),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    touched_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    stage_schema varchar(63),
    stage_table varchar(63),
    gids jsonb NOT NULL DEFAULT '[]',
    queues jsonb NOT NULL DEFAULT '[]',
    written bigint,
    skipped bigint,
    refused bigint,
    reasons jsonb NOT NULL DEFAULT '{}',
    refused_path text,
    refused_files jsonb NOT NULL DEFAULT '[]'
);
CREATE UNIQUE INDEX pgqueue_spark_write_name ON pgqueue_spark_write (name)
    WHERE state <> 'rolled_back';
CREATE INDEX pgqueue_spark_write_started ON pgqueue_spark_write (started_at);
"""
SPARK_WRITES_BACK = "DROP TABLE pgqueue_spark_write"

# The latest batch of each checkpoint of the pipeline job ingest: which run's files it
# is made of. A run that is no longer live cannot change it.
INGEST_BATCHES = """
CREATE TABLE pgqueue_ingest_batch (
    stream uuid PRIMARY KEY,
    number bigint NOT NULL,
    run_id bigint NOT NULL,
    decided_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
INGEST_BATCHES_BACK = "DROP TABLE pgqueue_ingest_batch"


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0002_log")]

    operations = [
        migrations.CreateModel(
            name="PipelineRun",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                ("job", models.CharField(max_length=100, verbose_name="pipeline job")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("running", "running"),
                            ("succeeded", "succeeded"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                            ("lost", "lost"),
                        ],
                        db_default="running",
                        max_length=9,
                        verbose_name="state",
                    ),
                ),
                (
                    "options",
                    models.JSONField(
                        db_default=models.Value({}, models.JSONField()),
                        verbose_name="options",
                    ),
                ),
                (
                    "asked_by",
                    models.CharField(
                        blank=True, max_length=150, null=True, verbose_name="asked by"
                    ),
                ),
                (
                    "queue_job_id",
                    models.BigIntegerField(blank=True, null=True, verbose_name="job"),
                ),
                ("hostname", models.CharField(max_length=255, verbose_name="host")),
                ("pid", models.IntegerField(verbose_name="process id")),
                (
                    "started_at",
                    models.DateTimeField(db_default=NOW, verbose_name="started at"),
                ),
                (
                    "finished_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="finished at"
                    ),
                ),
                ("lease_until", models.DateTimeField(verbose_name="lease until")),
                (
                    "rows_in",
                    models.BigIntegerField(db_default=0, verbose_name="rows in"),
                ),
                (
                    "rows_out",
                    models.BigIntegerField(db_default=0, verbose_name="rows out"),
                ),
                (
                    "progress",
                    models.JSONField(
                        db_default=models.Value({}, models.JSONField()),
                        verbose_name="progress",
                    ),
                ),
                (
                    "error",
                    models.TextField(blank=True, null=True, verbose_name="error"),
                ),
                (
                    "ui_url",
                    models.CharField(
                        blank=True,
                        max_length=500,
                        null=True,
                        verbose_name="address of Spark's UI",
                    ),
                ),
                (
                    "cancel_requested_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="cancel requested at"
                    ),
                ),
                (
                    "cancel_requested_by",
                    models.CharField(
                        blank=True,
                        max_length=150,
                        null=True,
                        verbose_name="cancel requested by",
                    ),
                ),
            ],
            options={
                "verbose_name": "pipeline run",
                "verbose_name_plural": "pipeline runs",
                "db_table": "pgqueue_pipeline_run",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["job", "-id"], name="pgqueue_pipeline_run_job")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "running")),
                        fields=("job",),
                        name="pgqueue_pipeline_run_live",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                ["running", "succeeded", "failed", "cancelled", "lost"],
                            )
                        ),
                        name="pgqueue_pipeline_run_state",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TaskHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                ("hour", models.DateTimeField(verbose_name="hour")),
                ("queue", models.CharField(max_length=63, verbose_name="queue")),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                (
                    "started",
                    models.BigIntegerField(db_default=0, verbose_name="started"),
                ),
                (
                    "succeeded",
                    models.BigIntegerField(db_default=0, verbose_name="succeeded"),
                ),
                ("failed", models.BigIntegerField(db_default=0, verbose_name="failed")),
                (
                    "retried",
                    models.BigIntegerField(db_default=0, verbose_name="retried"),
                ),
                ("dead", models.BigIntegerField(db_default=0, verbose_name="dead")),
                (
                    "cancelled",
                    models.BigIntegerField(db_default=0, verbose_name="cancelled"),
                ),
                (
                    "expired",
                    models.BigIntegerField(db_default=0, verbose_name="expired"),
                ),
                (
                    "crashed",
                    models.BigIntegerField(db_default=0, verbose_name="crashed"),
                ),
                (
                    "wait_p50",
                    models.FloatField(blank=True, null=True, verbose_name="wait p50"),
                ),
                (
                    "wait_p95",
                    models.FloatField(blank=True, null=True, verbose_name="wait p95"),
                ),
                (
                    "wait_p99",
                    models.FloatField(blank=True, null=True, verbose_name="wait p99"),
                ),
                (
                    "oldest_wait",
                    models.FloatField(
                        blank=True, null=True, verbose_name="oldest wait"
                    ),
                ),
                (
                    "run_p50",
                    models.FloatField(blank=True, null=True, verbose_name="run p50"),
                ),
                (
                    "run_p95",
                    models.FloatField(blank=True, null=True, verbose_name="run p95"),
                ),
                (
                    "run_p99",
                    models.FloatField(blank=True, null=True, verbose_name="run p99"),
                ),
                (
                    "worker_seconds",
                    models.FloatField(db_default=0, verbose_name="worker seconds"),
                ),
                (
                    "computed_at",
                    models.DateTimeField(db_default=NOW, verbose_name="computed at"),
                ),
            ],
            options={
                "verbose_name": "hour of a task",
                "verbose_name_plural": "metrics",
                "db_table": "pgqueue_task_hour",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["task", "hour"], name="pgqueue_task_hour_task")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("hour", "queue", "task"), name="pgqueue_task_hour_key"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Failure",
            fields=[
                (
                    "fingerprint",
                    models.CharField(
                        max_length=32,
                        primary_key=True,
                        serialize=False,
                        verbose_name="fingerprint",
                    ),
                ),
                ("error_class", models.CharField(max_length=255, verbose_name="class")),
                ("message", models.CharField(max_length=500, verbose_name="message")),
                ("place", models.CharField(max_length=255, verbose_name="place")),
                ("count", models.BigIntegerField(db_default=0, verbose_name="errors")),
                ("jobs", models.BigIntegerField(db_default=0, verbose_name="jobs")),
                (
                    "dead_letters",
                    models.BigIntegerField(db_default=0, verbose_name="dead letters"),
                ),
                (
                    "tasks",
                    models.JSONField(
                        db_default=models.Value([], models.JSONField()),
                        verbose_name="tasks",
                    ),
                ),
                ("first_seen", models.DateTimeField(verbose_name="first seen")),
                ("last_seen", models.DateTimeField(verbose_name="last seen")),
                (
                    "sample_job_id",
                    models.BigIntegerField(verbose_name="job of the sample"),
                ),
                ("sample_message", models.TextField(verbose_name="sample")),
                (
                    "sample_traceback",
                    models.TextField(verbose_name="traceback of the sample"),
                ),
                (
                    "computed_at",
                    models.DateTimeField(db_default=NOW, verbose_name="computed at"),
                ),
            ],
            options={
                "verbose_name": "failure",
                "verbose_name_plural": "failures",
                "db_table": "pgqueue_failure",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        fields=["-last_seen"], name="pgqueue_failure_last_seen"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="FailureHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                (
                    "fingerprint",
                    models.CharField(max_length=32, verbose_name="fingerprint"),
                ),
                ("hour", models.DateTimeField(verbose_name="hour")),
                ("count", models.BigIntegerField(verbose_name="errors")),
            ],
            options={
                "verbose_name": "hour of a failure",
                "verbose_name_plural": "hours of failures",
                "db_table": "pgqueue_failure_hour",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["hour"], name="pgqueue_failure_hour_hour")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("fingerprint", "hour"), name="pgqueue_failure_hour_key"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Export",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                ("target", models.CharField(max_length=900, verbose_name="target")),
                ("day", models.DateField(verbose_name="day")),
                ("format", models.CharField(max_length=7, verbose_name="format")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("writing", "writing"),
                            ("publishing", "publishing"),
                            ("exported", "exported"),
                            ("stale", "stale"),
                        ],
                        db_default="writing",
                        max_length=10,
                        verbose_name="state",
                    ),
                ),
                (
                    "rows",
                    models.BigIntegerField(blank=True, null=True, verbose_name="rows"),
                ),
                (
                    "checksum",
                    models.CharField(
                        blank=True, max_length=40, null=True, verbose_name="checksum"
                    ),
                ),
                (
                    "content",
                    models.CharField(
                        blank=True, max_length=40, null=True, verbose_name="content"
                    ),
                ),
                (
                    "files",
                    models.JSONField(
                        db_default=models.Value([], models.JSONField()),
                        verbose_name="files",
                    ),
                ),
                (
                    "version",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="version"
                    ),
                ),
                (
                    "exported_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="exported at"
                    ),
                ),
                ("run_id", models.BigIntegerField(verbose_name="run")),
                (
                    "started_at",
                    models.DateTimeField(db_default=NOW, verbose_name="started at"),
                ),
                (
                    "error",
                    models.TextField(blank=True, null=True, verbose_name="error"),
                ),
                (
                    "replaced",
                    models.JSONField(
                        db_default=models.Value([], models.JSONField()),
                        verbose_name="replaced",
                    ),
                ),
                (
                    "checked_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="checked at"
                    ),
                ),
            ],
            options={
                "verbose_name": "export",
                "verbose_name_plural": "exports",
                "db_table": "pgqueue_export",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("target", "day"), name="pgqueue_export_key"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                ["writing", "publishing", "exported", "stale"],
                            )
                        ),
                        name="pgqueue_export_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "exported"), _negated=True),
                            models.Q(
                                ("checksum__isnull", False),
                                ("exported_at__isnull", False),
                                ("rows__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="pgqueue_export_exported_is_counted",
                    ),
                ],
            },
        ),
        migrations.RunSQL(SPARK_WRITES, SPARK_WRITES_BACK),
        migrations.RunSQL(INGEST_BATCHES, INGEST_BATCHES_BACK),
    ]
