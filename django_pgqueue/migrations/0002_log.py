"""Topics: their log, subscriptions, consumer groups, and the functions that publish."""

from pathlib import Path

from django.db import migrations, models

NOW = models.Func(
    function="clock_timestamp",
    template="%(function)s()",
    output_field=models.DateTimeField(),
)

# One sequence over all topics, made apart from the column: identity columns of
# partitioned tables need PostgreSQL 17. CACHE 1: ids rise in the order in which they
# are drawn, whoever draws them.
#
# Partitioned by the day of published_at, which Django cannot declare. Days are made a
# week ahead by the leader, and by a publish that finds none. No DEFAULT partition, as
# for the archive. No foreign keys: they would cost every message and every DROP.
LOG = """
CREATE SEQUENCE pgqueue_message_id_seq AS bigint CACHE 1;
CREATE TABLE pgqueue_message (
    id bigint NOT NULL DEFAULT nextval('pgqueue_message_id_seq'),
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    epoch bigint NOT NULL DEFAULT 0,
    topic_id integer NOT NULL,
    partition smallint NOT NULL,
    name varchar(255) NOT NULL,
    key varchar(1000),
    payload jsonb NOT NULL,
    headers jsonb NOT NULL DEFAULT '{}'
        CONSTRAINT pgqueue_message_headers CHECK (jsonb_typeof(headers) = 'object'),
    PRIMARY KEY (id, published_at)
) PARTITION BY RANGE (published_at);
CREATE INDEX pgqueue_message_log ON pgqueue_message (topic_id, partition, id);
ALTER SEQUENCE pgqueue_message_id_seq OWNED BY pgqueue_message.id;
"""
LOG_BACK = "DROP TABLE pgqueue_message"

# A position is updated for every batch, and none of its indexed columns: with room on
# the page the new version needs no index entry.
POSITIONS = "ALTER TABLE pgqueue_position SET (fillfactor = 50)"
POSITIONS_BACK = "ALTER TABLE pgqueue_position RESET (fillfactor)"

# Functions and a CHECK, as django_pgqueue/sql/ had them; later changes come in later
# migrations.
FUNCTIONS = Path(__file__).with_suffix(".sql").read_text("utf-8")
FUNCTIONS_BACK = """
ALTER TABLE pgqueue_subscription DROP CONSTRAINT pgqueue_subscription_pattern;
DROP FUNCTION pgqueue_begin_publish, pgqueue_close_log_day, pgqueue_horizons,
    pgqueue_make_log_day, pgqueue_pattern_selects, pgqueue_patterns_of,
    pgqueue_publish, pgqueue_store_message, pgqueue_store_messages;
"""

DAYS = """
SELECT pgqueue_make_log_day((now() AT TIME ZONE 'UTC')::date + n)
  FROM generate_series(0, 7) n
"""


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0001_core")]

    operations = [
        migrations.CreateModel(
            name="LogDay",
            fields=[
                (
                    "day",
                    models.DateField(
                        primary_key=True, serialize=False, verbose_name="day"
                    ),
                ),
                ("last_id", models.BigIntegerField(verbose_name="last id")),
                (
                    "closed_at",
                    models.DateTimeField(db_default=NOW, verbose_name="closed at"),
                ),
            ],
            options={
                "verbose_name": "day of the log",
                "verbose_name_plural": "days of the log",
                "db_table": "pgqueue_log_day",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="LogState",
            fields=[
                (
                    "id",
                    models.SmallIntegerField(
                        db_default=1,
                        primary_key=True,
                        serialize=False,
                        verbose_name="id",
                    ),
                ),
                ("epoch", models.BigIntegerField(db_default=0, verbose_name="epoch")),
            ],
            options={
                "verbose_name": "state of the log",
                "verbose_name_plural": "state of the log",
                "db_table": "pgqueue_log_state",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Clock",
            fields=[
                (
                    "id",
                    models.SmallIntegerField(
                        db_default=1,
                        primary_key=True,
                        serialize=False,
                        verbose_name="id",
                    ),
                ),
                ("trusted_at", models.DateTimeField(verbose_name="trusted up to")),
            ],
            options={
                "verbose_name": "trusted clock",
                "verbose_name_plural": "trusted clock",
                "db_table": "pgqueue_clock",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Topic",
            fields=[
                (
                    "id",
                    models.AutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                (
                    "name",
                    models.CharField(max_length=63, unique=True, verbose_name="name"),
                ),
                (
                    "partitions",
                    models.SmallIntegerField(db_default=16, verbose_name="partitions"),
                ),
                (
                    "retain",
                    models.DurationField(
                        blank=True, null=True, verbose_name="retention"
                    ),
                ),
                (
                    "schema",
                    models.CharField(
                        blank=True, max_length=255, null=True, verbose_name="schema"
                    ),
                ),
                (
                    "removed_to",
                    models.BigIntegerField(db_default=0, verbose_name="removed up to"),
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
                    "created_at",
                    models.DateTimeField(db_default=NOW, verbose_name="created at"),
                ),
            ],
            options={
                "verbose_name": "topic",
                "verbose_name_plural": "topics",
                "db_table": "pgqueue_topic",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="ConsumerGroup",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                ("topic_id", models.IntegerField(verbose_name="topic id")),
                ("topic", models.CharField(max_length=63, verbose_name="topic")),
                ("name", models.CharField(max_length=63, verbose_name="name")),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                (
                    "queue",
                    models.CharField(
                        db_default="default", max_length=63, verbose_name="queue"
                    ),
                ),
                (
                    "batch",
                    models.IntegerField(
                        db_default=500, verbose_name="messages per batch"
                    ),
                ),
                (
                    "lease_seconds",
                    models.FloatField(
                        db_default=60.0, verbose_name="lease, in seconds"
                    ),
                ),
                (
                    "is_atomic",
                    models.BooleanField(db_default=False, verbose_name="atomic"),
                ),
                (
                    "payload_filter",
                    models.JSONField(blank=True, null=True, verbose_name="where"),
                ),
                (
                    "on_error",
                    models.CharField(
                        choices=[
                            ("retry", "retry for ever"),
                            ("skip", "retry, then to the dead letters"),
                            ("halt", "retry, then halt the partition"),
                        ],
                        db_default="skip",
                        max_length=5,
                        verbose_name="on error",
                    ),
                ),
                (
                    "max_attempts",
                    models.SmallIntegerField(
                        db_default=5, verbose_name="maximum attempts"
                    ),
                ),
                (
                    "start",
                    models.CharField(
                        db_default="latest", max_length=40, verbose_name="start"
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
                    "last_declared_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="last declared at"
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=NOW, verbose_name="created at"),
                ),
            ],
            options={
                "verbose_name": "consumer group",
                "verbose_name_plural": "consumer groups",
                "db_table": "pgqueue_consumer_group",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("topic_id", "name"), name="pgqueue_consumer_group_name"
                    )
                ],
            },
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(LOG, LOG_BACK)],
            state_operations=[
                migrations.CreateModel(
                    name="Message",
                    fields=[
                        (
                            "id",
                            models.BigIntegerField(
                                primary_key=True, serialize=False, verbose_name="id"
                            ),
                        ),
                        (
                            "published_at",
                            models.DateTimeField(
                                db_default=NOW, verbose_name="published at"
                            ),
                        ),
                        (
                            "epoch",
                            models.BigIntegerField(db_default=0, verbose_name="epoch"),
                        ),
                        ("topic_id", models.IntegerField(verbose_name="topic")),
                        (
                            "partition",
                            models.SmallIntegerField(verbose_name="partition"),
                        ),
                        ("name", models.CharField(max_length=255, verbose_name="name")),
                        (
                            "key",
                            models.CharField(
                                blank=True,
                                max_length=1000,
                                null=True,
                                verbose_name="key",
                            ),
                        ),
                        ("payload", models.JSONField(verbose_name="payload")),
                        (
                            "headers",
                            models.JSONField(
                                db_default=models.Value({}, models.JSONField()),
                                verbose_name="headers",
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "message",
                        "verbose_name_plural": "messages",
                        "db_table": "pgqueue_message",
                        "default_permissions": ("view",),
                        "indexes": [
                            models.Index(
                                fields=["topic_id", "partition", "id"],
                                name="pgqueue_message_log",
                            )
                        ],
                    },
                ),
            ],
        ),
        migrations.CreateModel(
            name="Position",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
                ),
                ("group_id", models.BigIntegerField(verbose_name="group")),
                ("partition", models.SmallIntegerField(verbose_name="partition")),
                (
                    "position",
                    models.BigIntegerField(db_default=0, verbose_name="position"),
                ),
                (
                    "moved_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="moved at"
                    ),
                ),
                ("fence", models.BigIntegerField(db_default=0, verbose_name="fence")),
                (
                    "leased_by",
                    models.CharField(
                        blank=True, max_length=100, null=True, verbose_name="leased by"
                    ),
                ),
                (
                    "leased_until",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="leased until"
                    ),
                ),
                (
                    "last_read_at",
                    models.DateTimeField(db_default=NOW, verbose_name="last read at"),
                ),
                (
                    "failures",
                    models.SmallIntegerField(db_default=0, verbose_name="failures"),
                ),
                (
                    "retry_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="retry at"
                    ),
                ),
                (
                    "single_to",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="one by one up to"
                    ),
                ),
                (
                    "errors",
                    models.JSONField(blank=True, null=True, verbose_name="errors"),
                ),
                (
                    "halted_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="halted at"
                    ),
                ),
                (
                    "halted_for",
                    models.CharField(
                        blank=True, max_length=9, null=True, verbose_name="halted for"
                    ),
                ),
            ],
            options={
                "verbose_name": "position",
                "verbose_name_plural": "positions",
                "db_table": "pgqueue_position",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("group_id", "partition"),
                        name="pgqueue_position_partition",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, verbose_name="id"
                    ),
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
                ("pattern", models.CharField(max_length=255, verbose_name="pattern")),
                (
                    "topic",
                    models.CharField(
                        blank=True, max_length=63, null=True, verbose_name="topic"
                    ),
                ),
                (
                    "regex",
                    models.CharField(
                        max_length=2000, null=True, verbose_name="regular expression"
                    ),
                ),
                (
                    "payload_filter",
                    models.JSONField(blank=True, null=True, verbose_name="where"),
                ),
                ("task", models.CharField(max_length=255, verbose_name="task")),
                (
                    "queue",
                    models.CharField(
                        db_default="default", max_length=63, verbose_name="queue"
                    ),
                ),
                (
                    "priority",
                    models.SmallIntegerField(db_default=0, verbose_name="priority"),
                ),
                (
                    "max_attempts",
                    models.SmallIntegerField(
                        db_default=5, verbose_name="maximum attempts"
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
                    "since_epoch",
                    models.BigIntegerField(db_default=0, verbose_name="since epoch"),
                ),
                (
                    "start",
                    models.CharField(
                        db_default="latest", max_length=40, verbose_name="start"
                    ),
                ),
                (
                    "backfill_position",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="back-filled up to"
                    ),
                ),
                (
                    "backfill_xid",
                    models.BigIntegerField(
                        blank=True, null=True, verbose_name="subscribing transaction"
                    ),
                ),
                (
                    "disabled_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="disabled at"
                    ),
                ),
                (
                    "disabled_by",
                    models.CharField(
                        blank=True,
                        max_length=150,
                        null=True,
                        verbose_name="disabled by",
                    ),
                ),
                (
                    "disabled_reason",
                    models.TextField(blank=True, null=True, verbose_name="reason"),
                ),
                (
                    "last_declared_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="last declared at"
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=NOW, verbose_name="created at"),
                ),
                ("lost", models.JSONField(blank=True, null=True, verbose_name="lost")),
            ],
            options={
                "verbose_name": "subscription",
                "verbose_name_plural": "subscriptions",
                "db_table": "pgqueue_subscription",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("queue", "pattern", "task"),
                        name="pgqueue_subscription_route",
                    )
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("disabled_at__isnull", True)),
                        fields=["pattern"],
                        name="pgqueue_subscription_routes",
                    ),
                    models.Index(
                        condition=models.Q(("disabled_at__isnull", True)),
                        fields=["topic"],
                        name="pgqueue_subscription_topic",
                    ),
                ],
            },
        ),
        migrations.RunSQL(POSITIONS, POSITIONS_BACK),
        migrations.RunSQL(FUNCTIONS, FUNCTIONS_BACK),
        # Dropped with their table.
        migrations.RunSQL(DAYS, migrations.RunSQL.noop),
    ]
