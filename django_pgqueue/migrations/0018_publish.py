"""Publishing: patterns without expressions, one message by itself, functions pinned."""

from importlib import import_module

from django.db import migrations, models
from django.db.models import Q

from django_pgqueue.migrations._pin import pin, unpin

before = import_module("django_pgqueue.migrations.0014_topics")
days = import_module("django_pgqueue.migrations.0015_days")


def replacing(definition: str) -> str:
    """Return the definition of a function, for one that is there already."""
    return definition.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)


# Who makes or closes a day keeps out who does the same in this installation, and nobody
# of another one in the database. The second number is what postgres/keys.py says.
EVERYBODY, OURS = "(706701, 0)", "(706701, 'pgqueue_job'::regclass::oid::integer)"

# What somebody else has made since this transaction's snapshot is seen by a function
# alone, in REPEATABLE READ.
BY_SNAPSHOT = """\
    IF EXISTS (SELECT FROM pg_catalog.pg_inherits i
                 JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = parent AND c.relname = name) THEN
"""
NOW = """\
    IF pg_catalog.pg_partition_root(pg_catalog.to_regclass(
           pg_catalog.format('%I.%I', schema, name))) = parent THEN
"""
MAKE_ARCHIVE_DAY = days.MAKE_ARCHIVE_DAY.replace(EVERYBODY, OURS).replace(
    BY_SNAPSHOT, NOW
)
MAKE_LOG_DAY = days.MAKE_LOG_DAY.replace(EVERYBODY, OURS).replace(BY_SNAPSHOT, NOW)
CLOSE_LOG_DAY = days.CLOSE_LOG_DAY.replace(EVERYBODY, OURS)

# Takes the lock that holds readers back, once for each transaction and topic: its key
# says the highest id that was drawn before. The setting remembers it. Both have the
# name of this installation: a transaction that publishes in two takes a lock in each.
# Assignments, not PERFORM: what is not a statement costs a third of one.
HOLD_READERS = """\
    setting := 'pgqueue.publishes_' || 'pgqueue_message'::regclass::oid
        || '_' || {topic_id};
    IF coalesce(current_setting(setting, true), '') = '' THEN
        -- The low 32 bits, with a sign.
        is_held := pg_advisory_xact_lock_shared(706800000 + {topic_id},
            ((({drawn} + 2147483648) & 4294967295) - 2147483648)::integer
        ) IS NOT NULL;
        is_held := set_config(setting, '1', true) IS NOT NULL;
    END IF;
"""
DRAWN = "CASE WHEN q.is_called THEN q.last_value ELSE q.last_value - 1 END"

# As in migration 0014, but for the setting.
BEGIN_PUBLISH = f"""
CREATE OR REPLACE FUNCTION pgqueue_begin_publish(
    topic text, OUT topic_id integer, OUT partitions integer
) LANGUAGE plpgsql AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    drawn bigint;
    setting text;
    is_held boolean;
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
    SELECT {DRAWN} INTO drawn FROM pgqueue_message_id_seq q;
{HOLD_READERS.format(topic_id="topic_id", drawn="drawn")}\
END $$;
"""  # noqa: S608  # Of constants alone.

# Whether a pattern selects a name: by words, as topics/names.py says. What is no
# pattern selects nothing, since no name has an empty word, and raises nothing.
PATTERN_SELECTS = """
CREATE FUNCTION pgqueue_pattern_selects(pattern text, name text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    wanted text[] := string_to_array(pattern, '.');
    words text[] := string_to_array(name, '.');
    length integer := cardinality(wanted);
BEGIN
    IF length = 1 THEN
        RETURN pattern IN ('*', words[1]);
    END IF;
    IF length = 0 OR cardinality(words) < length
       OR (cardinality(words) > length AND wanted[length] <> '*') THEN
        RETURN false;
    END IF;
    FOR place IN 1..length LOOP
        IF wanted[place] NOT IN ('*', words[place]) THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;
"""
PATTERN_SELECTS_BACK = "DROP FUNCTION pgqueue_pattern_selects(text, text)"

# All patterns that select a name, so that an index finds their subscriptions, however
# many others there are. Each word may stand there or be a star, and a star may stand
# for all that is left: 6 patterns for two words, 12 for three, 96 for six. For more
# words than that, those that there are are asked one by one; in the snapshot of the
# statement that calls this, since it is STABLE.
PATTERNS_OF = """
CREATE FUNCTION pgqueue_patterns_of(name text) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    words text[] := string_to_array(name, '.');
    length integer := cardinality(words);
    begun text[] := ARRAY[words[1], '*'];
    further text[];
    patterns text[] := begun;
    part text;
BEGIN
    IF length > 6 THEN
        RETURN ARRAY(
            SELECT DISTINCT s.pattern::text FROM pgqueue_subscription s
             WHERE (s.topic = words[1] OR s.topic IS NULL) AND s.disabled_at IS NULL
               AND pgqueue_pattern_selects(s.pattern, name));
    END IF;
    FOR place IN 2..length LOOP
        further := '{}';
        FOREACH part IN ARRAY begun LOOP
            further := further || ARRAY[part || '.' || words[place], part || '.*'];
            IF place < length THEN
                patterns := patterns || (part || '.*');
            END IF;
        END LOOP;
        begun := further;
    END LOOP;
    RETURN CASE WHEN length > 1 THEN patterns || begun ELSE patterns END;
END $$;
"""
PATTERNS_OF_BACK = "DROP FUNCTION pgqueue_patterns_of(text)"

# A job of a subscription s for a message m: by reference, without the payload.
JOB_COLUMNS = "queue, task, args, headers, priority, max_attempts, message_id"
JOB_OF = """\
               s.queue, s.task,
               jsonb_build_array(jsonb_build_object(
                   '__pgqueue__', 'message',
                   'value', jsonb_build_array(m.id, m.published_at))),
               m.headers || s.headers, s.priority, s.max_attempts, m.id
"""

# As in migration 0014, but for how subscriptions are found: each name that occurs is
# looked up once. OFFSET 0 keeps the lookup apart, through the index of the patterns.
STORE_MESSAGES = f"""
CREATE OR REPLACE FUNCTION pgqueue_store_messages(
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
    begun := pgqueue_begin_publish(topic);
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
{before.INSERT_MESSAGES % "state.epoch"}\
        RETURNING id)
        SELECT array_agg(id ORDER BY id), '{{}}', 0 FROM message
          INTO ids, queues, jobs;
        RETURN;
    END IF;
    WITH called AS MATERIALIZED (
        SELECT distinct_name.name, pgqueue_patterns_of(distinct_name.name) AS patterns
          FROM (SELECT DISTINCT item.value ->> 0 AS name
                  FROM jsonb_array_elements(items) AS item(value)) distinct_name
    ), wanted AS MATERIALIZED (
        SELECT called.name, route.*
          FROM called CROSS JOIN LATERAL (
               SELECT s.queue, s.task, s.headers, s.priority, s.max_attempts,
                      s.payload_filter
                 FROM pgqueue_subscription s
                WHERE s.pattern = ANY (called.patterns) AND s.disabled_at IS NULL
               OFFSET 0) route
    ), message AS (
{before.INSERT_MESSAGES % "coalesce((SELECT s.epoch FROM pgqueue_log_state s), 0)"}\
        RETURNING id, published_at, name, payload, headers
    ), job AS (
        INSERT INTO pgqueue_job ({JOB_COLUMNS})
        SELECT
{JOB_OF}\
          FROM message m JOIN wanted s
            ON s.name = m.name
           AND (s.payload_filter IS NULL OR m.payload @> s.payload_filter)
         ORDER BY m.id
        RETURNING queue
    )
    SELECT (SELECT array_agg(id ORDER BY id) FROM message),
           (SELECT coalesce(array_agg(DISTINCT queue), '{{}}') FROM job),
           (SELECT count(*) FROM job)
      INTO ids, queues, jobs;
END $$;
"""  # noqa: S608  # Of constants alone.

# Stores one message, and its jobs: what pgqueue_store_messages() does for many, in two
# statements where there is no subscription. It returns JSON in a text, since a record
# costs the server and the driver more: [id, has groups], and after that how many jobs,
# and the queues with new ones, where a subscription wants it.
#
# What it has to know is read by one statement, so epoch and subscriptions are of one
# snapshot, and the sequence is read before the lock is taken, which is all that the
# proof wants. The jobs are stored by a later statement, which asks for those
# subscriptions alone: one that was disabled or deleted in between gets no job, as if it
# had been so before. All of it happens in the snapshot of the caller's statement, which
# a back-fill waits for.
STORE_MESSAGE = f"""
CREATE FUNCTION pgqueue_store_message(
    name text, key text, payload jsonb, headers jsonb
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    topic text := split_part(name, '.', 1);
    patterns text[] := ARRAY[name, '*'];
    today text := 'pgqueue_message_'
        || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD');
    state record;
    stored record;
    made record;
    setting text;
    is_held boolean;
BEGIN
    IF topic <> name THEN
        IF cardinality(string_to_array(name, '.')) > 6 THEN
            -- Its patterns are found in the table, by the statement that does the rest.
            stored := pgqueue_store_messages(topic, jsonb_build_array(
                jsonb_build_array(name, key, payload, headers)));
            RETURN json_build_array(
                stored.ids[1], stored.has_groups, stored.jobs, stored.queues);
        END IF;
        patterns := pgqueue_patterns_of(name);
    END IF;
    LOOP
        SELECT t.id, t.partitions, {DRAWN} AS drawn,
               coalesce((SELECT s.epoch FROM pgqueue_log_state s), 0) AS epoch,
               ARRAY(SELECT s.id FROM pgqueue_subscription s
                      WHERE s.pattern = ANY (patterns)
                        AND s.disabled_at IS NULL) AS wanted,
               EXISTS (SELECT FROM pgqueue_consumer_group g
                        WHERE g.topic_id = t.id) AS has_groups
          INTO state
          FROM pgqueue_topic t, pgqueue_message_id_seq q WHERE t.name = topic;
        EXIT WHEN FOUND AND to_regclass(today) IS NOT NULL;
        PERFORM pgqueue_begin_publish(topic);
        today := 'pgqueue_message_'
            || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD');
    END LOOP;
{HOLD_READERS.format(topic_id="state.id", drawn="state.drawn")}\
    INSERT INTO pgqueue_message AS m
           (epoch, topic_id, partition, name, key, payload, headers)
    VALUES (state.epoch, state.id,
            CASE WHEN $2 IS NULL
                 THEN floor(random() * state.partitions)::integer
                 ELSE (hashtextextended($2, 0)
                       & 9223372036854775807) % state.partitions END,
            $1, $2, $3, $4)
    RETURNING m.id, m.published_at INTO stored;
    IF state.wanted = '{{}}' THEN
        RETURN '[' || stored.id || ',' || state.has_groups || ']';
    END IF;
    WITH job AS (
        INSERT INTO pgqueue_job ({JOB_COLUMNS})
        SELECT
{JOB_OF}\
          FROM pgqueue_subscription s,
               (SELECT stored.id, stored.published_at, $3 AS payload, $4 AS headers) m
         WHERE s.id = ANY (state.wanted) AND s.disabled_at IS NULL
           AND (s.payload_filter IS NULL OR m.payload @> s.payload_filter)
        RETURNING queue
    )
    SELECT count(*) AS jobs, coalesce(array_agg(DISTINCT job.queue), '{{}}') AS queues
      INTO made FROM job;
    RETURN json_build_array(stored.id, state.has_groups, made.jobs, made.queues);
END $$;
"""  # noqa: S608  # Of constants alone.
STORE_MESSAGE_BACK = "DROP FUNCTION pgqueue_store_message(text, text, jsonb, jsonb)"

# The publish of other languages, by the function above.
PUBLISH = """
CREATE OR REPLACE FUNCTION pgqueue_publish(
    name text,
    payload jsonb,
    key text DEFAULT NULL,
    headers jsonb DEFAULT '{}'
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    stored jsonb;
BEGIN
    IF name !~ '^[A-Za-z0-9_-]{1,63}([.][A-Za-z0-9_-]+)*$' OR length(name) > 255 THEN
        RAISE EXCEPTION 'a message cannot be called %: write words of letters, '
            'digits, _ and - with dots between, such as orders.created', name
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    stored := pgqueue_store_message(name, key, coalesce(payload, 'null'), headers);
    PERFORM pg_notify(pgqueue_channel(), queue)
       FROM jsonb_array_elements_text(stored -> 3) queue;
    IF (stored -> 1)::boolean THEN
        PERFORM pg_notify(pgqueue_channel(), '!topic ' || split_part(name, '.', 1));
    END IF;
    RETURN stored -> 0;
END $$;
"""

# As in migration 0014, but that a lock counts only where its transaction has this
# installation's log open for writing, too: locks of another installation in the
# database have the same numbers. It had so before it drew its first id, and has so
# until its end, as it has the lock: what the proof says of the one holds for both.
HORIZONS = """
CREATE OR REPLACE FUNCTION pgqueue_horizons()
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
        WITH lock AS MATERIALIZED (
            SELECT l.locktype, l.virtualtransaction, l.classid,
                   (highest - l.objid::bigint) & 4294967295 AS behind
              FROM pg_locks l
             WHERE l.granted
               AND l.database = (SELECT d.oid FROM pg_database d
                                  WHERE d.datname = current_database())
               AND (l.locktype = 'advisory' AND l.objsubid = 2
                    AND l.mode = 'ShareLock'
                    AND l.classid::bigint BETWEEN 706800001 AND 2147483647
                    OR l.locktype = 'relation'
                    AND l.relation = 'pgqueue_message'::regclass
                    AND l.mode = 'RowExclusiveLock'))
        SELECT NULL::integer, highest
        UNION ALL
        SELECT (held.classid::bigint - 706800000)::integer, highest - max(held.behind)
          FROM lock held
         WHERE held.locktype = 'advisory' AND held.behind < 2147483648
           AND EXISTS (SELECT FROM lock ours
                        WHERE ours.locktype = 'relation'
                          AND ours.virtualtransaction = held.virtualtransaction)
         GROUP BY held.classid;
END $$;
"""

# A row that no publish would find has a wrong pattern or topic: it is refused where it
# is written. NOT VALID: rows from before stay, get nothing, and the doctor names them;
# they can be disabled and deleted.
#
# Locks: ACCESS EXCLUSIVE on the table, for a moment.
SOUND = r"""
ALTER TABLE pgqueue_subscription ADD CONSTRAINT pgqueue_subscription_pattern CHECK (
    disabled_at IS NOT NULL
    OR (pattern ~ '^([*]|[A-Za-z0-9_-]+)([.]([*]|[A-Za-z0-9_-]+))*$'
        AND topic IS NOT DISTINCT FROM nullif(split_part(pattern, '.', 1), '*'))
) NOT VALID
"""
SOUND_BACK = """
ALTER TABLE pgqueue_subscription DROP CONSTRAINT pgqueue_subscription_pattern
"""

# All of ours but pgqueue_check_job(), which is called for each row: its body qualifies
# all that it uses (migration 0006).
WITH_CALLERS_PATH = (
    *("pgqueue_job_place", "pgqueue_installation", "pgqueue_store"),
    *("pgqueue_dedup_key", "pgqueue_store_unique", "pgqueue_retake_keys"),
    *("pgqueue_begin_publish", "pgqueue_store_messages", "pgqueue_horizons"),
)
# With the path of whoever migrated, as it was: "$user" in it is who calls.
WITH_MIGRATORS_PATH = (
    *("pgqueue_channel", "pgqueue_enqueue", "pgqueue_publish", "pgqueue_repeat_calls"),
)
# Pinned by migration 0015; what replaces a function forgets it.
PINNED = ("pgqueue_make_archive_day", "pgqueue_make_log_day", "pgqueue_close_log_day")
NEW = ("pgqueue_pattern_selects", "pgqueue_patterns_of", "pgqueue_store_message")
PINS = pin(*WITH_CALLERS_PATH, *WITH_MIGRATORS_PATH, *PINNED, *NEW)
PINS_BACK = unpin(*WITH_CALLERS_PATH) + unpin(*WITH_MIGRATORS_PATH).replace(
    "RESET search_path", "SET search_path FROM CURRENT"
)


class Migration(migrations.Migration):
    """Each step can be taken back."""

    dependencies = [("pgqueue", "0017_suspects")]

    operations = [
        # Locks: SHARE on the table while it is read once: subscribing waits.
        migrations.AddIndex(
            model_name="subscription",
            index=models.Index(
                condition=Q(disabled_at__isnull=True),
                fields=["pattern"],
                name="pgqueue_subscription_routes",
            ),
        ),
        migrations.AddIndex(
            model_name="subscription",
            index=models.Index(
                condition=Q(disabled_at__isnull=True),
                fields=["topic"],
                name="pgqueue_subscription_topic",
            ),
        ),
        migrations.RunSQL(SOUND, SOUND_BACK),
        # After the way back of what follows, which forgets the pins.
        migrations.RunSQL(migrations.RunSQL.noop, pin(*PINNED)),
        migrations.RunSQL(MAKE_ARCHIVE_DAY, days.MAKE_ARCHIVE_DAY),
        migrations.RunSQL(MAKE_LOG_DAY, days.MAKE_LOG_DAY),
        migrations.RunSQL(CLOSE_LOG_DAY, days.CLOSE_LOG_DAY),
        migrations.RunSQL(BEGIN_PUBLISH, replacing(before.BEGIN_PUBLISH)),
        migrations.RunSQL(PATTERN_SELECTS, PATTERN_SELECTS_BACK),
        migrations.RunSQL(PATTERNS_OF, PATTERNS_OF_BACK),
        migrations.RunSQL(STORE_MESSAGES, replacing(before.STORE_MESSAGES)),
        migrations.RunSQL(STORE_MESSAGE, STORE_MESSAGE_BACK),
        migrations.RunSQL(PUBLISH, replacing(before.PUBLISH)),
        migrations.RunSQL(HORIZONS, replacing(before.HORIZONS)),
        migrations.RunSQL(PINS, PINS_BACK),
    ]
