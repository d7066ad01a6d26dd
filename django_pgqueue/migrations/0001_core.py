"""The core: queues, jobs, their archive and dead letters, dedup keys, schedules."""

from pathlib import Path

from django.db import migrations, models

NOW = models.Func(
    function="clock_timestamp",
    template="%(function)s()",
    output_field=models.DateTimeField(),
)

# What a row keeps wherever it is: in the queue, the archive or the dead letters.
SHARED = [
    (
        "queue",
        models.CharField(db_default="default", max_length=63, verbose_name="queue"),
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
        models.DateTimeField(blank=True, null=True, verbose_name="run after"),
    ),
    (
        "enqueued_at",
        models.DateTimeField(db_default=NOW, verbose_name="enqueued at"),
    ),
    (
        "expires_at",
        models.DateTimeField(blank=True, null=True, verbose_name="expires at"),
    ),
    (
        "attempt",
        models.SmallIntegerField(db_default=0, verbose_name="attempt"),
    ),
    (
        "max_attempts",
        models.SmallIntegerField(db_default=5, verbose_name="maximum attempts"),
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
        models.CharField(blank=True, max_length=255, null=True, verbose_name="lane"),
    ),
    (
        "lane_capacity",
        models.IntegerField(blank=True, null=True, verbose_name="lane capacity"),
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
        models.BigIntegerField(blank=True, null=True, verbose_name="workflow"),
    ),
    (
        "parent_id",
        models.BigIntegerField(blank=True, null=True, verbose_name="parent job"),
    ),
    (
        "message_id",
        models.BigIntegerField(blank=True, null=True, verbose_name="message"),
    ),
    (
        "schedule_id",
        models.BigIntegerField(blank=True, null=True, verbose_name="schedule"),
    ),
]

# The archive is partitioned by day of finished_at, which Django cannot declare. The
# days of the coming week are made below, then a week ahead by the leader, and by an
# ack that finds none.
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
    accumulate_key varchar(255),
    PRIMARY KEY (id, finished_at)
) PARTITION BY RANGE (finished_at);
CREATE INDEX pgqueue_archived_job_result ON pgqueue_archived_job (finished_at)
    WHERE result IS NOT NULL;
"""
ARCHIVE_BACK = "DROP TABLE pgqueue_archived_job"

# Vacuum by count, not by share: the table is small when the backlog is, and every job
# leaves two or three dead rows. vacuum_truncate off: cutting the tail of the file
# needs an ACCESS EXCLUSIVE lock, which would stall claims on an emptied queue.
# fillfactor stays at 100: claims change an indexed column, so no update is HOT.
STORAGE = """
ALTER TABLE pgqueue_job SET (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);
"""
STORAGE_BACK = """
ALTER TABLE pgqueue_job RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
    autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold,
    autovacuum_analyze_scale_factor, autovacuum_analyze_threshold,
    autovacuum_vacuum_cost_delay, vacuum_truncate
);
"""

# Partial: a row without tags costs one look into its headers, and nothing is written.
# IS NOT NULL, since the planner proves it from any strict operator: a query that says
# headers -> 'tags' @> '["x"]' needs no second condition.
# A small pending list: what is in it is searched row by row, and whoever fills it up
# sorts it in.
# On the partitioned archive, each day gets the index when it is attached.
# Locks: SHARE on each table while it is read once: enqueues and settles wait.
TAGS = """
CREATE INDEX {table}_tags ON {table} USING gin ((headers -> 'tags'))
    WITH (gin_pending_list_limit = 256) WHERE (headers -> 'tags') IS NOT NULL
"""
TAGS_BACK = "DROP INDEX {table}_tags"
TAGGED = ("pgqueue_job", "pgqueue_archived_job", "pgqueue_dead_letter")

# Functions, trigger and CHECK, as django_pgqueue/sql/ had them; later changes come in
# later migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")
FUNCTIONS_BACK = """
ALTER TABLE pgqueue_job DROP CONSTRAINT pgqueue_job_is_sound;
DROP TRIGGER pgqueue_job_place ON pgqueue_job;
DROP FUNCTION pgqueue_channel, pgqueue_check_job, pgqueue_dedup_key, pgqueue_enqueue,
    pgqueue_installation, pgqueue_job_place, pgqueue_make_archive_day,
    pgqueue_repeat_calls, pgqueue_retake_keys, pgqueue_store, pgqueue_store_unique;
"""

# Today and the coming week, by the day in UTC.
DAYS = """
SELECT pgqueue_make_archive_day((now() AT TIME ZONE 'UTC')::date + n)
  FROM generate_series(0, 7) n
"""


class Migration(migrations.Migration):
    """Each step can be taken back."""

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
                    models.DateTimeField(db_default=NOW, verbose_name="created at"),
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
                    models.DateTimeField(db_default=NOW, verbose_name="started at"),
                ),
                (
                    "heartbeat_at",
                    models.DateTimeField(db_default=NOW, verbose_name="heartbeat at"),
                ),
                (
                    "leader_until",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="leader until"
                    ),
                ),
                (
                    "async_slots",
                    models.IntegerField(db_default=0, verbose_name="async slots"),
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
            database_operations=[migrations.RunSQL(ARCHIVE, ARCHIVE_BACK)],
            state_operations=[
                migrations.CreateModel(
                    name="ArchivedJob",
                    fields=[
                        *SHARED,
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
                        (
                            "accumulate_key",
                            models.CharField(
                                blank=True,
                                max_length=255,
                                null=True,
                                verbose_name="accumulate key",
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
                *SHARED,
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
                (
                    "queued_key",
                    models.CharField(
                        blank=True, max_length=255, null=True, verbose_name="queued key"
                    ),
                ),
                (
                    "accumulate_key",
                    models.CharField(
                        blank=True,
                        max_length=255,
                        null=True,
                        verbose_name="accumulate key",
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
                *SHARED,
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                (
                    "visible_at",
                    models.DateTimeField(
                        blank=True, db_default=NOW, null=True, verbose_name="visible at"
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
                (
                    "queued_key",
                    models.CharField(
                        blank=True, max_length=255, null=True, verbose_name="queued key"
                    ),
                ),
                (
                    "accumulate_key",
                    models.CharField(
                        blank=True,
                        max_length=255,
                        null=True,
                        verbose_name="accumulate key",
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
                    ("run_pipeline", "Can run and stop pipeline jobs"),
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
                    models.Index(
                        condition=models.Q(("schedule_id__isnull", False)),
                        fields=["schedule_id"],
                        name="pgqueue_job_schedule",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("accumulate_key__isnull", False),
                            ("leased_by__isnull", True),
                        ),
                        fields=["accumulate_key", "task", "queue", "visible_at"],
                        name="pgqueue_job_accumulate",
                    ),
                    models.Index(
                        condition=models.Q(("runs_alone", True)),
                        fields=["visible_at"],
                        name="pgqueue_job_alone",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("dedup_key__isnull", False)),
                        fields=("dedup_key",),
                        name="pgqueue_job_dedup_key",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DedupWindow",
            fields=[
                (
                    "key",
                    models.CharField(
                        max_length=255,
                        primary_key=True,
                        serialize=False,
                        verbose_name="dedup key",
                    ),
                ),
                ("until", models.DateTimeField(verbose_name="until")),
                ("jobs", models.IntegerField(verbose_name="jobs")),
                ("job_id", models.BigIntegerField(verbose_name="job")),
            ],
            options={
                "verbose_name": "dedup window",
                "verbose_name_plural": "dedup windows",
                "db_table": "pgqueue_dedup_window",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(fields=["until"], name="pgqueue_dedup_window_until")
                ],
            },
        ),
        migrations.CreateModel(
            name="DedupCall",
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
                ("key", models.CharField(max_length=255, verbose_name="dedup key")),
                ("holder_id", models.BigIntegerField(verbose_name="holder")),
                ("queue", models.CharField(max_length=63, verbose_name="queue")),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                ("args", models.JSONField(verbose_name="positional arguments")),
                ("kwargs", models.JSONField(verbose_name="keyword arguments")),
                ("headers", models.JSONField(verbose_name="headers")),
                ("priority", models.SmallIntegerField(verbose_name="priority")),
                (
                    "max_attempts",
                    models.SmallIntegerField(verbose_name="maximum attempts"),
                ),
                (
                    "run_after",
                    models.DateTimeField(null=True, verbose_name="run after"),
                ),
                (
                    "expires_at",
                    models.DateTimeField(null=True, verbose_name="expires at"),
                ),
                ("hold", models.CharField(max_length=20, verbose_name="held while")),
                ("period", models.DurationField(null=True, verbose_name="period")),
                (
                    "jobs",
                    models.IntegerField(null=True, verbose_name="jobs in a period"),
                ),
            ],
            options={
                "verbose_name": "dedup call",
                "verbose_name_plural": "dedup calls",
                "db_table": "pgqueue_dedup_call",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["key"], name="pgqueue_dedup_call_key")
                ],
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                (
                    "name",
                    models.CharField(max_length=255, unique=True, verbose_name="name"),
                ),
                (
                    "source",
                    models.CharField(
                        choices=[("code", "code"), ("user", "user")],
                        db_default="user",
                        max_length=4,
                        verbose_name="source",
                    ),
                ),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                (
                    "args",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value([], models.JSONField()),
                        verbose_name="positional arguments",
                    ),
                ),
                (
                    "kwargs",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value({}, models.JSONField()),
                        verbose_name="keyword arguments",
                    ),
                ),
                (
                    "queue",
                    models.CharField(
                        blank=True, max_length=63, null=True, verbose_name="queue"
                    ),
                ),
                (
                    "priority",
                    models.SmallIntegerField(
                        blank=True, null=True, verbose_name="priority"
                    ),
                ),
                (
                    "expression",
                    models.CharField(
                        blank=True,
                        max_length=255,
                        null=True,
                        verbose_name="cron expression",
                    ),
                ),
                (
                    "every_seconds",
                    models.IntegerField(
                        blank=True, null=True, verbose_name="every, in seconds"
                    ),
                ),
                (
                    "tz",
                    models.CharField(
                        db_default="UTC", max_length=100, verbose_name="time zone"
                    ),
                ),
                (
                    "catch_up",
                    models.CharField(
                        db_default="one", max_length=10, verbose_name="catch up"
                    ),
                ),
                (
                    "overlap",
                    models.CharField(
                        choices=[("skip", "skip"), ("queue", "queue")],
                        db_default="skip",
                        max_length=5,
                        verbose_name="overlap",
                    ),
                ),
                (
                    "jitter_seconds",
                    models.IntegerField(
                        db_default=0, verbose_name="jitter, in seconds"
                    ),
                ),
                (
                    "declared",
                    models.JSONField(blank=True, null=True, verbose_name="declared"),
                ),
                (
                    "last_declared_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="last declared at"
                    ),
                ),
                (
                    "withdrawn_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="withdrawn at"
                    ),
                ),
                (
                    "overridden_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="overridden at"
                    ),
                ),
                (
                    "overridden_by",
                    models.CharField(
                        blank=True,
                        max_length=150,
                        null=True,
                        verbose_name="overridden by",
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
                (
                    "created_at",
                    models.DateTimeField(db_default=NOW, verbose_name="created at"),
                ),
                (
                    "created_by",
                    models.CharField(
                        blank=True, max_length=150, null=True, verbose_name="created by"
                    ),
                ),
                (
                    "revision",
                    models.IntegerField(db_default=0, verbose_name="revision"),
                ),
                (
                    "ticks_from",
                    models.DateTimeField(db_default=NOW, verbose_name="ticks from"),
                ),
                (
                    "last_tick",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="last tick"
                    ),
                ),
                (
                    "next_tick",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="next tick"
                    ),
                ),
                (
                    "error",
                    models.TextField(blank=True, null=True, verbose_name="error"),
                ),
                (
                    "message_key",
                    models.CharField(
                        blank=True, max_length=1000, null=True, verbose_name="key"
                    ),
                ),
                (
                    "message_name",
                    models.CharField(
                        blank=True, max_length=255, null=True, verbose_name="message"
                    ),
                ),
                (
                    "message_payload",
                    models.JSONField(blank=True, null=True, verbose_name="payload"),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "db_table": "pgqueue_schedule",
                "default_permissions": ("add", "change", "delete", "view"),
                "indexes": [
                    models.Index(
                        condition=models.Q(
                            ("paused_at__isnull", True), ("withdrawn_at__isnull", True)
                        ),
                        fields=["next_tick"],
                        name="pgqueue_schedule_next",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("every_seconds__isnull", True),
                                ("expression__isnull", False),
                            ),
                            models.Q(
                                ("every_seconds__gte", 1), ("expression__isnull", True)
                            ),
                            _connector="OR",
                        ),
                        name="pgqueue_schedule_timetable",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("declared__isnull", False), ("source", "code")),
                            models.Q(("declared__isnull", True), ("source", "user")),
                            _connector="OR",
                        ),
                        name="pgqueue_schedule_source",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("overlap__in", ["skip", "queue"])),
                        name="pgqueue_schedule_overlap",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("jitter_seconds__gte", 0)),
                        name="pgqueue_schedule_jitter",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Tick",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                ("schedule_id", models.BigIntegerField(verbose_name="schedule")),
                ("due_at", models.DateTimeField(verbose_name="due at")),
                (
                    "ticked_at",
                    models.DateTimeField(db_default=NOW, verbose_name="ticked at"),
                ),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("enqueued", "enqueued"),
                            ("published", "published"),
                            ("overlap", "skipped: the one before was not done"),
                            ("duplicate", "skipped: its dedup key is held"),
                            ("missed", "missed"),
                        ],
                        db_default="enqueued",
                        max_length=9,
                        verbose_name="outcome",
                    ),
                ),
                (
                    "job_id",
                    models.BigIntegerField(blank=True, null=True, verbose_name="job"),
                ),
                (
                    "missed",
                    models.SmallIntegerField(
                        db_default=0, verbose_name="missed before"
                    ),
                ),
                (
                    "asked_by",
                    models.CharField(
                        blank=True, max_length=150, null=True, verbose_name="asked by"
                    ),
                ),
                (
                    "message_id",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="message"
                    ),
                ),
            ],
            options={
                "verbose_name": "tick",
                "verbose_name_plural": "ticks",
                "db_table": "pgqueue_tick",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("schedule_id", "due_at"), name="pgqueue_tick_key"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "outcome__in",
                                [
                                    "enqueued",
                                    "published",
                                    "overlap",
                                    "duplicate",
                                    "missed",
                                ],
                            )
                        ),
                        name="pgqueue_tick_outcome",
                    ),
                ],
            },
        ),
        migrations.RunSQL(STORAGE, STORAGE_BACK),
        *(
            migrations.RunSQL(TAGS.format(table=table), TAGS_BACK.format(table=table))
            for table in TAGGED
        ),
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
        # Dropped with their table.
        migrations.RunSQL(DAYS, migrations.RunSQL.noop),
    ]
