"""Topics: their log, subscriptions, consumer groups, and the functions that publish."""

from django.db import migrations, models

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

# Makes the partition of a day (UTC), if there is none. Made apart and attached, as in
# queues/partitions.py: ATTACH takes SHARE UPDATE EXCLUSIVE on the parent, beside which
# messages are published. The advisory lock lets one at a time make days; what it did is
# asked by a function, which sees it in REPEATABLE READ, too.
MAKE_DAY = """
CREATE FUNCTION pgqueue_make_log_day(day date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    name text := 'pgqueue_message_' || to_char(day, 'YYYYMMDD');
BEGIN
    PERFORM pg_advisory_xact_lock(706701, 0);
    IF pg_partition_root(to_regclass(name)) = 'pgqueue_message'::regclass THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE IF NOT EXISTS %I (LIKE pgqueue_message'
                   ' INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
    EXECUTE format('ALTER TABLE pgqueue_message ATTACH PARTITION %I'
                   ' FOR VALUES FROM (%L) TO (%L)',
                   name, day || ' 00:00+00', day + 1 || ' 00:00+00');
    RETURN true;
END $$;
"""
MAKE_DAY_BACK = "DROP FUNCTION pgqueue_make_log_day(date)"

DAYS = """
SELECT pgqueue_make_log_day((now() AT TIME ZONE 'UTC')::date + n)
  FROM generate_series(0, 7) n
"""

# Begins to publish in this transaction: finds or makes the topic, and takes the lock
# that holds its readers back, once for each transaction and topic. The lock's key says
# above which id everything is that this transaction may draw, so it must be taken
# before the first id is. The setting remembers it; it ends with the lock, at commit,
# rollback, and rollback to a savepoint.
#
# A day before one that is closed is not made: readers have passed it, as topics/days.py
# says, and the constraint of a closed day is only where there is such a day.
BEGIN_PUBLISH = """
CREATE FUNCTION pgqueue_begin_publish(
    topic text, OUT topic_id integer, OUT partitions integer
) LANGUAGE plpgsql AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
    IF to_regclass('pgqueue_message_' || to_char(today, 'YYYYMMDD')) IS NULL THEN
        IF today < (SELECT max(d.day) FROM pgqueue_log_day d) THEN
            RAISE EXCEPTION 'by the clock of the server it is %, and a later day of '
                'the log is closed: nobody would read a message of today; set the '
                'clock right', today
                USING ERRCODE = 'check_violation';
        END IF;
        PERFORM pgqueue_make_log_day(today);
    END IF;
    SELECT t.id, t.partitions INTO topic_id, partitions
      FROM pgqueue_topic t WHERE t.name = topic;
    IF NOT FOUND THEN
        INSERT INTO pgqueue_topic AS t (name) VALUES (topic)
            ON CONFLICT DO NOTHING
            RETURNING t.id, t.partitions INTO topic_id, partitions;
        IF NOT FOUND THEN
            SELECT t.id, t.partitions INTO topic_id, partitions
              FROM pgqueue_topic t WHERE t.name = topic;
        END IF;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the topic % was made by a transaction that this one '
                'does not see: run it again', topic
                USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    IF coalesce(current_setting('pgqueue.publishes_' || topic_id, true), '') = '' THEN
        PERFORM pg_advisory_xact_lock_shared(706800000 + topic_id, low.bits)
           FROM (SELECT (CASE WHEN value >= 2147483648 THEN value - 4294967296
                              ELSE value END)::integer AS bits
                   FROM (SELECT (CASE WHEN is_called THEN last_value
                                      ELSE last_value - 1 END) & 4294967295 AS value
                           FROM pgqueue_message_id_seq) sequence) low;
        PERFORM set_config('pgqueue.publishes_' || topic_id, '1', true);
    END IF;
END $$;
"""
BEGIN_PUBLISH_BACK = "DROP FUNCTION pgqueue_begin_publish(text)"

# The rows of the items, in the order of the items: so do their ids rise. %s: the epoch.
INSERT_MESSAGES = """\
        INSERT INTO pgqueue_message
               (epoch, topic_id, partition, name, key, payload, headers)
        SELECT %s, begun.topic_id,
               CASE WHEN item.value -> 1 = 'null'
                    THEN floor(random() * begun.partitions)::integer
                    ELSE (hashtextextended(item.value ->> 1, 0)
                          & 9223372036854775807) %% begun.partitions END,
               item.value ->> 0, item.value ->> 1, item.value -> 2, item.value -> 3
          FROM jsonb_array_elements(items) WITH ORDINALITY AS item(value, place)
         ORDER BY item.place
"""

# Stores messages of one topic, and a job for each subscription that wants one: one
# statement, so that both see the same subscriptions and the same epoch. An item is
# [name, key, payload, headers]. A job refers to its message, by id and time, and holds
# no payload. Where a topic has no subscription, the statement that has seen so has seen
# the epoch, too; and all of it happens in the snapshot of the caller's statement, which
# a back-fill waits for.
STORE_MESSAGES = f"""
CREATE FUNCTION pgqueue_store_messages(
    topic text,
    items jsonb,
    OUT ids bigint[],
    OUT queues text[],
    OUT jobs integer,
    OUT has_groups boolean
) LANGUAGE plpgsql AS $$
DECLARE
    begun record;
    state record;
BEGIN
    SELECT * INTO begun FROM pgqueue_begin_publish(topic);
    SELECT coalesce((SELECT s.epoch FROM pgqueue_log_state s), 0) AS epoch,
           EXISTS (SELECT FROM pgqueue_subscription s
                    WHERE (s.topic = $1 OR s.topic IS NULL)
                      AND s.disabled_at IS NULL) AS has_subscriptions,
           EXISTS (SELECT FROM pgqueue_consumer_group g
                    WHERE g.topic_id = begun.topic_id) AS has_groups
      INTO state;
    has_groups := state.has_groups;
    IF NOT state.has_subscriptions THEN
        WITH message AS (
{INSERT_MESSAGES % "state.epoch"}\
        RETURNING id)
        SELECT array_agg(id ORDER BY id), '{{}}', 0 FROM message
          INTO ids, queues, jobs;
        RETURN;
    END IF;
    WITH message AS (
{INSERT_MESSAGES % "coalesce((SELECT s.epoch FROM pgqueue_log_state s), 0)"}\
        RETURNING id, published_at, name, payload, headers
    ), job AS (
        INSERT INTO pgqueue_job
               (queue, task, args, headers, priority, max_attempts, message_id)
        SELECT s.queue, s.task,
               jsonb_build_array(jsonb_build_object(
                   '__pgqueue__', 'message',
                   'value', jsonb_build_array(message.id, message.published_at))),
               message.headers || s.headers, s.priority, s.max_attempts, message.id
          FROM message JOIN pgqueue_subscription s
            ON (s.topic = $1 OR s.topic IS NULL) AND s.disabled_at IS NULL
           AND (s.regex IS NULL OR message.name ~ s.regex)
           AND (s.payload_filter IS NULL OR message.payload @> s.payload_filter)
        RETURNING queue
    )
    SELECT (SELECT array_agg(id ORDER BY id) FROM message),
           (SELECT coalesce(array_agg(DISTINCT queue), '{{}}') FROM job),
           (SELECT count(*) FROM job)
      INTO ids, queues, jobs;
END $$;
"""  # noqa: S608  # Of constants alone.
STORE_MESSAGES_BACK = "DROP FUNCTION pgqueue_store_messages(text, jsonb)"

# The publish of other languages. It notifies inside the caller's transaction, as
# pgqueue_enqueue() does; where that must not be, call pgqueue_store_messages().
PUBLISH = """
CREATE FUNCTION pgqueue_publish(
    name text,
    payload jsonb,
    key text DEFAULT NULL,
    headers jsonb DEFAULT '{}'
) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    stored record;
BEGIN
    IF name !~ '^[A-Za-z0-9_-]{1,63}([.][A-Za-z0-9_-]+)*$' OR length(name) > 255 THEN
        RAISE EXCEPTION 'a message cannot be called %: write words of letters, '
            'digits, _ and - with dots between, such as orders.created', name
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO stored FROM pgqueue_store_messages(
        split_part(name, '.', 1), jsonb_build_array(
            jsonb_build_array(name, key, coalesce(payload, 'null'), headers)));
    PERFORM pg_notify(pgqueue_channel(), queue) FROM unnest(stored.queues) queue;
    IF stored.has_groups THEN
        PERFORM pg_notify(pgqueue_channel(), '!topic ' || split_part(name, '.', 1));
    END IF;
    RETURN stored.ids[1];
END $$;
"""
PUBLISH_BACK = "DROP FUNCTION pgqueue_publish(text, jsonb, text, jsonb)"

# Up to which id the log of each topic can be read without skipping anything. A row
# without a topic is for all that have no row of their own. The order is the proof: the
# highest id drawn, then the locks of those who draw, and only then, in a statement of
# its own, the messages. An id up to the bound was drawn by a transaction that has
# ended, hence its message is visible, or was rolled back. Ids are compared modulo 2^32,
# since a lock's key has no more: what lies half of that behind was drawn later.
HORIZONS = """
CREATE FUNCTION pgqueue_horizons()
RETURNS TABLE (topic_id integer, bound bigint) LANGUAGE plpgsql AS $$
DECLARE
    highest bigint;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'the horizon of a log is known to the primary alone: a replica '
            'does not see the locks of those who publish'
            USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END INTO highest
      FROM pgqueue_message_id_seq;
    RETURN QUERY
        SELECT NULL::integer, highest
        UNION ALL
        SELECT (held.classid::bigint - 706800000)::integer, highest - max(held.behind)
          FROM (SELECT l.classid, (highest - l.objid::bigint) & 4294967295 AS behind
                  FROM pg_locks l
                 WHERE l.locktype = 'advisory' AND l.objsubid = 2
                   AND l.mode = 'ShareLock' AND l.granted
                   AND l.classid::bigint BETWEEN 706800001 AND 2147483647
                   AND l.database = (SELECT d.oid FROM pg_database d
                                      WHERE d.datname = current_database())) held
         WHERE held.behind < 2147483648
         GROUP BY held.classid;
END $$;
"""
HORIZONS_BACK = "DROP FUNCTION pgqueue_horizons()"


class Migration(migrations.Migration):
    dependencies = [
        ("pgqueue", "0013_accumulate"),
    ]

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
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="closed at",
                    ),
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
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="created at",
                    ),
                ),
            ],
            options={
                "verbose_name": "topic",
                "verbose_name_plural": "topics",
                "db_table": "pgqueue_topic",
                "default_permissions": ("view",),
            },
        ),
        migrations.AddField(
            model_name="schedule",
            name="message_key",
            field=models.CharField(
                blank=True, max_length=1000, null=True, verbose_name="key"
            ),
        ),
        migrations.AddField(
            model_name="schedule",
            name="message_name",
            field=models.CharField(
                blank=True, max_length=255, null=True, verbose_name="message"
            ),
        ),
        migrations.AddField(
            model_name="schedule",
            name="message_payload",
            field=models.JSONField(blank=True, null=True, verbose_name="payload"),
        ),
        migrations.AddField(
            model_name="tick",
            name="message_id",
            field=models.BigIntegerField(blank=True, null=True, verbose_name="message"),
        ),
        migrations.RemoveConstraint(model_name="tick", name="pgqueue_tick_outcome"),
        migrations.AlterField(
            model_name="tick",
            name="outcome",
            field=models.CharField(
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
        migrations.AddConstraint(
            model_name="tick",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "outcome__in",
                        ["enqueued", "published", "overlap", "duplicate", "missed"],
                    )
                ),
                name="pgqueue_tick_outcome",
            ),
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
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="created at",
                    ),
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
                                db_default=models.Func(
                                    function="clock_timestamp",
                                    output_field=models.DateTimeField(),
                                    template="%(function)s()",
                                ),
                                verbose_name="published at",
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
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="last read at",
                    ),
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
                    models.DateTimeField(
                        db_default=models.Func(
                            function="clock_timestamp",
                            output_field=models.DateTimeField(),
                            template="%(function)s()",
                        ),
                        verbose_name="created at",
                    ),
                ),
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
            },
        ),
        migrations.RunSQL(POSITIONS, POSITIONS_BACK),
        migrations.RunSQL(MAKE_DAY, MAKE_DAY_BACK),
        # Dropped with their table.
        migrations.RunSQL(DAYS, migrations.RunSQL.noop),
        migrations.RunSQL(BEGIN_PUBLISH, BEGIN_PUBLISH_BACK),
        migrations.RunSQL(STORE_MESSAGES, STORE_MESSAGES_BACK),
        migrations.RunSQL(PUBLISH, PUBLISH_BACK),
        migrations.RunSQL(HORIZONS, HORIZONS_BACK),
    ]
