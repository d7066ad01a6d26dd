"""The tables of the queue, the archive and the dead letters."""

import datetime
from django.db import migrations, models

# The archive is partitioned by day of finished_at, which Django cannot declare. The
# table is empty here; partitions of the coming days are made by the next migration,
# then a week ahead by the leader, and by an ack that finds none.
# No DEFAULT partition: it would forbid DETACH CONCURRENTLY, and attaching beside it
# scans it under a lock that stalls acks.
ARCHIVE = """
CREATE TABLE pgqueue_archived_job (
    id bigint NOT NULL,
    queue varchar(63) NOT NULL DEFAULT 'default',
    task varchar(255) NOT NULL,
    args jsonb NOT NULL DEFAULT '[]',
    kwargs jsonb NOT NULL DEFAULT '{}',
    headers jsonb NOT NULL DEFAULT '{}',
    priority smallint NOT NULL DEFAULT 0,
    run_after timestamptz,
    enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    attempt smallint NOT NULL DEFAULT 0,
    max_attempts smallint NOT NULL DEFAULT 5,
    crashes smallint NOT NULL DEFAULT 0,
    deliveries integer NOT NULL DEFAULT 0,
    dedup_key varchar(255),
    lane varchar(255),
    lane_capacity integer,
    errors jsonb NOT NULL DEFAULT '[]',
    progress jsonb,
    workflow_id bigint,
    parent_id bigint,
    message_id bigint,
    schedule_id bigint,
    state varchar(9) NOT NULL
        CONSTRAINT pgqueue_archived_job_state
        CHECK (state IN ('succeeded', 'cancelled', 'expired')),
    result jsonb,
    started_at timestamptz,
    finished_at timestamptz NOT NULL,
    worker varchar(100),
    PRIMARY KEY (id, finished_at)
) PARTITION BY RANGE (finished_at);
CREATE INDEX pgqueue_archived_job_result ON pgqueue_archived_job (finished_at)
    WHERE result IS NOT NULL;
"""
DROP_ARCHIVE = "DROP TABLE pgqueue_archived_job"


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Queue",
            fields=[
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        primary_key=True,
                        serialize=False,
                        verbose_name="name",
                    ),
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
                    "paused_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="paused at"
                    ),
                ),
                (
                    "paused_by",
                    models.CharField(
                        blank=True, max_length=150, null=True, verbose_name="paused by"
                    ),
                ),
                (
                    "pause_reason",
                    models.TextField(
                        blank=True, null=True, verbose_name="pause reason"
                    ),
                ),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "db_table": "pgqueue_queue",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                (
                    "name",
                    models.CharField(
                        max_length=100,
                        primary_key=True,
                        serialize=False,
                        verbose_name="name",
                    ),
                ),
                ("hostname", models.CharField(max_length=255, verbose_name="host")),
                ("pid", models.IntegerField(verbose_name="process id")),
                (
                    "queues",
                    models.JSONField(
                        db_default=models.Value([], models.JSONField()),
                        verbose_name="queues",
                    ),
                ),
                ("threads", models.IntegerField(verbose_name="threads")),
                ("version", models.CharField(max_length=50, verbose_name="version")),
                (
                    "started_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="started at",
                    ),
                ),
                (
                    "heartbeat_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="heartbeat at",
                    ),
                ),
                (
                    "leader_until",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="leader until"
                    ),
                ),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "db_table": "pgqueue_worker",
                "default_permissions": ("view",),
            },
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(ARCHIVE, DROP_ARCHIVE)],
            state_operations=[
                migrations.CreateModel(
                    name="ArchivedJob",
                    fields=[
                        (
                            "queue",
                            models.CharField(
                                db_default="default",
                                max_length=63,
                                verbose_name="queue",
                            ),
                        ),
                        ("task", models.CharField(max_length=255, verbose_name="task")),
                        (
                            "args",
                            models.JSONField(
                                db_default=models.Value([], models.JSONField()),
                                verbose_name="positional arguments",
                            ),
                        ),
                        (
                            "kwargs",
                            models.JSONField(
                                db_default=models.Value({}, models.JSONField()),
                                verbose_name="keyword arguments",
                            ),
                        ),
                        (
                            "headers",
                            models.JSONField(
                                db_default=models.Value({}, models.JSONField()),
                                verbose_name="headers",
                            ),
                        ),
                        (
                            "priority",
                            models.SmallIntegerField(
                                db_default=0, verbose_name="priority"
                            ),
                        ),
                        (
                            "run_after",
                            models.DateTimeField(
                                blank=True, null=True, verbose_name="run after"
                            ),
                        ),
                        (
                            "enqueued_at",
                            models.DateTimeField(
                                db_default=models.Func(
                                    function="clock_timestamp",
                                    output_field=models.DateTimeField(),
                                    template="%(function)s()",
                                ),
                                verbose_name="enqueued at",
                            ),
                        ),
                        (
                            "expires_at",
                            models.DateTimeField(
                                blank=True, null=True, verbose_name="expires at"
                            ),
                        ),
                        (
                            "attempt",
                            models.SmallIntegerField(
                                db_default=0, verbose_name="attempt"
                            ),
                        ),
                        (
                            "max_attempts",
                            models.SmallIntegerField(
                                db_default=5, verbose_name="maximum attempts"
                            ),
                        ),
                        (
                            "crashes",
                            models.SmallIntegerField(
                                db_default=0, verbose_name="crashes"
                            ),
                        ),
                        (
                            "deliveries",
                            models.IntegerField(
                                db_default=0, verbose_name="deliveries"
                            ),
                        ),
                        (
                            "dedup_key",
                            models.CharField(
                                blank=True,
                                max_length=255,
                                null=True,
                                verbose_name="dedup key",
                            ),
                        ),
                        (
                            "lane",
                            models.CharField(
                                blank=True,
                                max_length=255,
                                null=True,
                                verbose_name="lane",
                            ),
                        ),
                        (
                            "lane_capacity",
                            models.IntegerField(
                                blank=True, null=True, verbose_name="lane capacity"
                            ),
                        ),
                        (
                            "errors",
                            models.JSONField(
                                db_default=models.Value([], models.JSONField()),
                                verbose_name="errors",
                            ),
                        ),
                        (
                            "progress",
                            models.JSONField(
                                blank=True, null=True, verbose_name="progress"
                            ),
                        ),
                        (
                            "workflow_id",
                            models.BigIntegerField(
                                blank=True, null=True, verbose_name="workflow"
                            ),
                        ),
                        (
                            "parent_id",
                            models.BigIntegerField(
                                blank=True, null=True, verbose_name="parent job"
                            ),
                        ),
                        (
                            "message_id",
                            models.BigIntegerField(
                                blank=True, null=True, verbose_name="message"
                            ),
                        ),
                        (
                            "schedule_id",
                            models.BigIntegerField(
                                blank=True, null=True, verbose_name="schedule"
                            ),
                        ),
                        (
                            "id",
                            models.BigIntegerField(
                                primary_key=True, serialize=False, verbose_name="id"
                            ),
                        ),
                        (
                            "state",
                            models.CharField(
                                choices=[
                                    ("succeeded", "succeeded"),
                                    ("cancelled", "cancelled"),
                                    ("expired", "expired"),
                                ],
                                max_length=9,
                                verbose_name="state",
                            ),
                        ),
                        (
                            "result",
                            models.JSONField(
                                blank=True, null=True, verbose_name="result"
                            ),
                        ),
                        (
                            "started_at",
                            models.DateTimeField(
                                blank=True, null=True, verbose_name="started at"
                            ),
                        ),
                        (
                            "finished_at",
                            models.DateTimeField(verbose_name="finished at"),
                        ),
                        (
                            "worker",
                            models.CharField(
                                blank=True,
                                max_length=100,
                                null=True,
                                verbose_name="worker",
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "archived job",
                        "verbose_name_plural": "archived jobs",
                        "db_table": "pgqueue_archived_job",
                        "default_permissions": ("view",),
                        "indexes": [
                            models.Index(
                                condition=models.Q(("result__isnull", False)),
                                fields=["finished_at"],
                                name="pgqueue_archived_job_result",
                            )
                        ],
                    },
                ),
            ],
        ),
        migrations.CreateModel(
            name="DeadLetter",
            fields=[
                (
                    "queue",
                    models.CharField(
                        db_default="default", max_length=63, verbose_name="queue"
                    ),
                ),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                (
                    "args",
                    models.JSONField(
                        db_default=models.Value([], models.JSONField()),
                        verbose_name="positional arguments",
                    ),
                ),
                (
                    "kwargs",
                    models.JSONField(
                        db_default=models.Value({}, models.JSONField()),
                        verbose_name="keyword arguments",
                    ),
                ),
                (
                    "headers",
                    models.JSONField(
                        db_default=models.Value({}, models.JSONField()),
                        verbose_name="headers",
                    ),
                ),
                (
                    "priority",
                    models.SmallIntegerField(db_default=0, verbose_name="priority"),
                ),
                (
                    "run_after",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="run after"
                    ),
                ),
                (
                    "enqueued_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="enqueued at",
                    ),
                ),
                (
                    "expires_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="expires at"
                    ),
                ),
                (
                    "attempt",
                    models.SmallIntegerField(db_default=0, verbose_name="attempt"),
                ),
                (
                    "max_attempts",
                    models.SmallIntegerField(
                        db_default=5, verbose_name="maximum attempts"
                    ),
                ),
                (
                    "crashes",
                    models.SmallIntegerField(db_default=0, verbose_name="crashes"),
                ),
                (
                    "deliveries",
                    models.IntegerField(db_default=0, verbose_name="deliveries"),
                ),
                (
                    "dedup_key",
                    models.CharField(
                        blank=True, max_length=255, null=True, verbose_name="dedup key"
                    ),
                ),
                (
                    "lane",
                    models.CharField(
                        blank=True, max_length=255, null=True, verbose_name="lane"
                    ),
                ),
                (
                    "lane_capacity",
                    models.IntegerField(
                        blank=True, null=True, verbose_name="lane capacity"
                    ),
                ),
                (
                    "errors",
                    models.JSONField(
                        db_default=models.Value([], models.JSONField()),
                        verbose_name="errors",
                    ),
                ),
                (
                    "progress",
                    models.JSONField(blank=True, null=True, verbose_name="progress"),
                ),
                (
                    "workflow_id",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="workflow"
                    ),
                ),
                (
                    "parent_id",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="parent job"
                    ),
                ),
                (
                    "message_id",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="message"
                    ),
                ),
                (
                    "schedule_id",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="schedule"
                    ),
                ),
                (
                    "id",
                    models.BigIntegerField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                (
                    "reason",
                    models.CharField(
                        choices=[
                            ("rejected", "rejected by the task"),
                            ("exhausted", "attempts used up"),
                            ("timeout", "ran longer than its timeout"),
                            ("lease_expired", "lease ran out too often"),
                            ("worker_lost", "its process died too often"),
                            ("unknown_task", "no such task"),
                            ("undecodable", "arguments cannot be read"),
                            ("unpermitted", "not permitted"),
                        ],
                        max_length=13,
                        verbose_name="reason",
                    ),
                ),
                (
                    "started_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="started at"
                    ),
                ),
                ("finished_at", models.DateTimeField(verbose_name="finished at")),
                (
                    "worker",
                    models.CharField(
                        blank=True, max_length=100, null=True, verbose_name="worker"
                    ),
                ),
            ],
            options={
                "verbose_name": "dead letter",
                "verbose_name_plural": "dead letters",
                "db_table": "pgqueue_dead_letter",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        fields=["finished_at"], name="pgqueue_dead_letter_finished"
                    ),
                    models.Index(
                        fields=["queue", "task", "id"], name="pgqueue_dead_letter_queue"
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "reason__in",
                                [
                                    "rejected",
                                    "exhausted",
                                    "timeout",
                                    "lease_expired",
                                    "worker_lost",
                                    "unknown_task",
                                    "undecodable",
                                    "unpermitted",
                                ],
                            )
                        ),
                        name="pgqueue_dead_letter_reason",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                (
                    "queue",
                    models.CharField(
                        db_default="default", max_length=63, verbose_name="queue"
                    ),
                ),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                (
                    "args",
                    models.JSONField(
                        db_default=models.Value([], models.JSONField()),
                        verbose_name="positional arguments",
                    ),
                ),
                (
                    "kwargs",
                    models.JSONField(
                        db_default=models.Value({}, models.JSONField()),
                        verbose_name="keyword arguments",
                    ),
                ),
                (
                    "headers",
                    models.JSONField(
                        db_default=models.Value({}, models.JSONField()),
                        verbose_name="headers",
                    ),
                ),
                (
                    "priority",
                    models.SmallIntegerField(db_default=0, verbose_name="priority"),
                ),
                (
                    "run_after",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="run after"
                    ),
                ),
                (
                    "enqueued_at",
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="enqueued at",
                    ),
                ),
                (
                    "expires_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="expires at"
                    ),
                ),
                (
                    "attempt",
                    models.SmallIntegerField(db_default=0, verbose_name="attempt"),
                ),
                (
                    "max_attempts",
                    models.SmallIntegerField(
                        db_default=5, verbose_name="maximum attempts"
                    ),
                ),
                (
                    "crashes",
                    models.SmallIntegerField(db_default=0, verbose_name="crashes"),
                ),
                (
                    "deliveries",
                    models.IntegerField(db_default=0, verbose_name="deliveries"),
                ),
                (
                    "dedup_key",
                    models.CharField(
                        blank=True, max_length=255, null=True, verbose_name="dedup key"
                    ),
                ),
                (
                    "lane",
                    models.CharField(
                        blank=True, max_length=255, null=True, verbose_name="lane"
                    ),
                ),
                (
                    "lane_capacity",
                    models.IntegerField(
                        blank=True, null=True, verbose_name="lane capacity"
                    ),
                ),
                (
                    "errors",
                    models.JSONField(
                        db_default=models.Value([], models.JSONField()),
                        verbose_name="errors",
                    ),
                ),
                (
                    "progress",
                    models.JSONField(blank=True, null=True, verbose_name="progress"),
                ),
                (
                    "workflow_id",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="workflow"
                    ),
                ),
                (
                    "parent_id",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="parent job"
                    ),
                ),
                (
                    "message_id",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="message"
                    ),
                ),
                (
                    "schedule_id",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="schedule"
                    ),
                ),
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                (
                    "visible_at",
                    models.DateTimeField(
                        blank=True,
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        null=True,
                        verbose_name="visible at",
                    ),
                ),
                (
                    "leased_by",
                    models.CharField(
                        blank=True, max_length=100, null=True, verbose_name="leased by"
                    ),
                ),
                (
                    "leased_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="leased at"
                    ),
                ),
                (
                    "runs_alone",
                    models.BooleanField(db_default=False, verbose_name="runs alone"),
                ),
                (
                    "cancel_requested_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="cancel requested at"
                    ),
                ),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "db_table": "pgqueue_job",
                "permissions": [
                    ("view_payload", "Can see arguments, results and tracebacks"),
                    ("retry", "Can retry jobs and redrive dead letters"),
                    ("edit", "Can edit the arguments of a job"),
                    ("cancel", "Can cancel jobs"),
                    ("purge", "Can delete finished jobs and dead letters"),
                    ("pause", "Can pause and resume queues and schedules"),
                    ("run_schedule", "Can run a schedule now"),
                    ("seek", "Can move the position of a consumer group"),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        fields=["queue", "-priority", "visible_at"],
                        name="pgqueue_job_claim",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("lane__isnull", False), ("visible_at__isnull", True)
                        ),
                        fields=["lane", "id"],
                        name="pgqueue_job_lane_parked",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("lane__isnull", False), ("visible_at__isnull", False)
                        ),
                        fields=["lane"],
                        name="pgqueue_job_lane_visible",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("lane__isnull", False), ("visible_at__isnull", True)
                        ),
                        fields=["queue", "id"],
                        name="pgqueue_job_lane_intake",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("dedup_key__isnull", False)),
                        fields=("dedup_key",),
                        name="pgqueue_job_dedup_key",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("leased_by__isnull", True),
                            ("visible_at__isnull", False),
                            _connector="OR",
                        ),
                        name="pgqueue_job_leased_is_not_parked",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("attempt__gte", 0),
                            ("crashes__gte", 0),
                            ("deliveries__gte", models.F("attempt")),
                            ("max_attempts__gte", 1),
                        ),
                        name="pgqueue_job_attempt_counts",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("priority__gte", -100), ("priority__lte", 100)
                        ),
                        name="pgqueue_job_priority_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("queue", ""), _negated=True),
                            models.Q(("task", ""), _negated=True),
                        ),
                        name="pgqueue_job_names_are_not_empty",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("lane_capacity__isnull", True),
                            ("lane_capacity__gte", 1),
                            _connector="OR",
                        ),
                        name="pgqueue_job_lane_has_capacity",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "visible_at__gte",
                                datetime.datetime(
                                    1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc
                                ),
                            ),
                            (
                                "visible_at__lt",
                                datetime.datetime(
                                    9999, 1, 1, 0, 0, tzinfo=datetime.timezone.utc
                                ),
                            ),
                            (
                                "run_after__gte",
                                datetime.datetime(
                                    1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc
                                ),
                            ),
                            (
                                "run_after__lt",
                                datetime.datetime(
                                    9999, 1, 1, 0, 0, tzinfo=datetime.timezone.utc
                                ),
                            ),
                            (
                                "enqueued_at__gte",
                                datetime.datetime(
                                    1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc
                                ),
                            ),
                            (
                                "enqueued_at__lt",
                                datetime.datetime(
                                    9999, 1, 1, 0, 0, tzinfo=datetime.timezone.utc
                                ),
                            ),
                            (
                                "expires_at__gte",
                                datetime.datetime(
                                    1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc
                                ),
                            ),
                            (
                                "expires_at__lt",
                                datetime.datetime(
                                    9999, 1, 1, 0, 0, tzinfo=datetime.timezone.utc
                                ),
                            ),
                            (
                                "leased_at__gte",
                                datetime.datetime(
                                    1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc
                                ),
                            ),
                            (
                                "leased_at__lt",
                                datetime.datetime(
                                    9999, 1, 1, 0, 0, tzinfo=datetime.timezone.utc
                                ),
                            ),
                            (
                                "cancel_requested_at__gte",
                                datetime.datetime(
                                    1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc
                                ),
                            ),
                            (
                                "cancel_requested_at__lt",
                                datetime.datetime(
                                    9999, 1, 1, 0, 0, tzinfo=datetime.timezone.utc
                                ),
                            ),
                        ),
                        name="pgqueue_job_times_are_readable",
                    ),
                ],
            },
        ),
    ]
