-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

-- patterns.sql
CREATE OR REPLACE FUNCTION pgqueue_pattern_selects(pattern text, name text)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
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

CREATE OR REPLACE FUNCTION pgqueue_patterns_of(name text) RETURNS text[]
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

-- make_log_day.sql
CREATE OR REPLACE FUNCTION pgqueue_make_log_day(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    parent regclass := 'pgqueue_message';
    name text := 'pgqueue_message_'
        || pg_catalog.to_char(day::timestamp, 'YYYYMMDD');
    today date := (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::date;
    caller name := CASE pg_catalog.current_setting('role')
                        WHEN 'none' THEN session_user
                        ELSE pg_catalog.current_setting('role') END;
    schema name;
    owner oid;
    owner_there oid;
BEGIN
    IF (day < today - 1 OR day > today + 35)
       AND NOT pg_catalog.pg_has_role(caller, current_user, 'USAGE') THEN
        RAISE EXCEPTION 'the day % cannot be made by %: from yesterday on, days can be '
            'made 35 ahead', day, caller
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_catalog.pg_advisory_xact_lock(
        706701, 'pgqueue_job'::regclass::oid::integer);
    SELECT n.nspname, c.relowner INTO schema, owner
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
        ON n.oid = c.relnamespace
     WHERE c.oid = parent;
    IF pg_catalog.pg_partition_root(pg_catalog.to_regclass(
           pg_catalog.format('%I.%I', schema, name))) = parent THEN
        RETURN false;
    END IF;
    SELECT c.relowner INTO owner_there
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
        ON n.oid = c.relnamespace
     WHERE n.nspname = schema AND c.relname = name;
    IF owner_there <> owner THEN
        RAISE EXCEPTION 'the table %.% belongs to another role than %: drop or rename '
            'it', schema, name, parent USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE pg_catalog.format('CREATE TABLE IF NOT EXISTS %I.%I (LIKE %s'
                   ' INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', schema, name, parent);
    EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %I.%I'
                   ' FOR VALUES FROM (%L) TO (%L)', parent, schema, name,
                   day || ' 00:00+00', day + 1 || ' 00:00+00');
    RETURN true;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_make_log_day(date) FROM PUBLIC;

-- close_log_day.sql
CREATE OR REPLACE FUNCTION pgqueue_close_log_day(day date) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '200ms' AS $$
DECLARE
    parent regclass := 'pgqueue_message';
    name text := 'pgqueue_message_' || pg_catalog.to_char(day::timestamp, 'YYYYMMDD');
    schema name;
    highest bigint;
BEGIN
    IF NOT day < (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::date THEN
        RAISE EXCEPTION 'the day % is not over', day
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_catalog.pg_advisory_xact_lock(
        706701, 'pgqueue_job'::regclass::oid::integer);
    IF EXISTS (SELECT FROM pgqueue_log_day d WHERE d.day = $1) THEN
        RETURN NULL;
    END IF;
    SELECT n.nspname INTO schema
      FROM pg_catalog.pg_inherits i
      JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE i.inhparent = parent AND c.relname = name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the log has no day %', day
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END
      INTO highest FROM pgqueue_message_id_seq s;
    -- There is one where the row that it stands for was deleted.
    EXECUTE pg_catalog.format('ALTER TABLE %I.%I DROP CONSTRAINT IF EXISTS %I',
                   schema, name, name || '_closed');
    EXECUTE pg_catalog.format(
        'ALTER TABLE %I.%I ADD CONSTRAINT %I CHECK (id <= %s) NOT VALID',
        schema, name, name || '_closed', highest);
    INSERT INTO pgqueue_log_day VALUES (day, highest);
    RETURN highest;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_close_log_day(date) FROM PUBLIC;

-- begin_publish.sql
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
    SELECT CASE WHEN q.is_called THEN q.last_value ELSE q.last_value - 1 END
      INTO drawn FROM pgqueue_message_id_seq q;
    setting := 'pgqueue.publishes_' || 'pgqueue_message'::regclass::oid
        || '_' || topic_id;
    IF coalesce(current_setting(setting, true), '') = '' THEN
        -- The low 32 bits, with a sign.
        is_held := pg_advisory_xact_lock_shared(706800000 + topic_id,
            (((drawn + 2147483648) & 4294967295) - 2147483648)::integer
        ) IS NOT NULL;
        is_held := set_config(setting, '1', true) IS NOT NULL;
    END IF;
END $$;

-- store_messages.sql
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
        INSERT INTO pgqueue_message
               (epoch, topic_id, partition, name, key, payload, headers)
        SELECT state.epoch, begun.topic_id,
               CASE WHEN item.value -> 1 = 'null'
                    THEN floor(random() * begun.partitions)::integer
                    ELSE (hashtextextended(item.value ->> 1, 0)
                          & 9223372036854775807) % begun.partitions END,
               item.value ->> 0, item.value ->> 1, item.value -> 2, item.value -> 3
          FROM jsonb_array_elements(items) WITH ORDINALITY AS item(value, place)
         ORDER BY item.place
        RETURNING id)
        SELECT array_agg(id ORDER BY id), '{}', 0 FROM message
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
        INSERT INTO pgqueue_message
               (epoch, topic_id, partition, name, key, payload, headers)
        SELECT coalesce((SELECT s.epoch FROM pgqueue_log_state s), 0), begun.topic_id,
               CASE WHEN item.value -> 1 = 'null'
                    THEN floor(random() * begun.partitions)::integer
                    ELSE (hashtextextended(item.value ->> 1, 0)
                          & 9223372036854775807) % begun.partitions END,
               item.value ->> 0, item.value ->> 1, item.value -> 2, item.value -> 3
          FROM jsonb_array_elements(items) WITH ORDINALITY AS item(value, place)
         ORDER BY item.place
        RETURNING id, published_at, name, payload, headers
    ), job AS (
        INSERT INTO pgqueue_job
               (queue, task, args, headers, priority, max_attempts, message_id)
        SELECT s.queue, s.task,
               jsonb_build_array(jsonb_build_object(
                   '__pgqueue__', 'message',
                   'value', jsonb_build_array(m.id, m.published_at))),
               m.headers || s.headers, s.priority, s.max_attempts, m.id
          FROM message m JOIN wanted s
            ON s.name = m.name
           AND (s.payload_filter IS NULL OR m.payload @> s.payload_filter)
         ORDER BY m.id
        RETURNING queue
    )
    SELECT (SELECT array_agg(id ORDER BY id) FROM message),
           (SELECT coalesce(array_agg(DISTINCT queue), '{}') FROM job),
           (SELECT count(*) FROM job)
      INTO ids, queues, jobs;
END $$;

-- store_message.sql
CREATE OR REPLACE FUNCTION pgqueue_store_message(
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
        SELECT t.id, t.partitions,
               CASE WHEN q.is_called THEN q.last_value
                    ELSE q.last_value - 1 END AS drawn,
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
    setting := 'pgqueue.publishes_' || 'pgqueue_message'::regclass::oid
        || '_' || state.id;
    IF coalesce(current_setting(setting, true), '') = '' THEN
        -- The low 32 bits, with a sign.
        is_held := pg_advisory_xact_lock_shared(706800000 + state.id,
            (((state.drawn + 2147483648) & 4294967295) - 2147483648)::integer
        ) IS NOT NULL;
        is_held := set_config(setting, '1', true) IS NOT NULL;
    END IF;
    INSERT INTO pgqueue_message AS m
           (epoch, topic_id, partition, name, key, payload, headers)
    VALUES (state.epoch, state.id,
            CASE WHEN $2 IS NULL
                 THEN floor(random() * state.partitions)::integer
                 ELSE (hashtextextended($2, 0)
                       & 9223372036854775807) % state.partitions END,
            $1, $2, $3, $4)
    RETURNING m.id, m.published_at INTO stored;
    IF state.wanted = '{}' THEN
        RETURN '[' || stored.id || ',' || state.has_groups || ']';
    END IF;
    WITH job AS (
        INSERT INTO pgqueue_job
               (queue, task, args, headers, priority, max_attempts, message_id)
        SELECT s.queue, s.task,
               jsonb_build_array(jsonb_build_object(
                   '__pgqueue__', 'message',
                   'value', jsonb_build_array(m.id, m.published_at))),
               m.headers || s.headers, s.priority, s.max_attempts, m.id
          FROM pgqueue_subscription s,
               (SELECT stored.id, stored.published_at, $3 AS payload, $4 AS headers) m
         WHERE s.id = ANY (state.wanted) AND s.disabled_at IS NULL
           AND (s.payload_filter IS NULL OR m.payload @> s.payload_filter)
        RETURNING queue
    )
    SELECT count(*) AS jobs, coalesce(array_agg(DISTINCT job.queue), '{}') AS queues
      INTO made FROM job;
    RETURN json_build_array(stored.id, state.has_groups, made.jobs, made.queues);
END $$;

-- publish.sql
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

-- horizons.sql
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

-- subscription_pattern.sql
ALTER TABLE pgqueue_subscription ADD CONSTRAINT pgqueue_subscription_pattern CHECK (
    disabled_at IS NOT NULL
    OR (pattern ~ '^([*]|[A-Za-z0-9_-]+)([.]([*]|[A-Za-z0-9_-]+))*$'
        AND topic IS NOT DISTINCT FROM nullif(split_part(pattern, '.', 1), '*'))
) NOT VALID;

-- pins.sql
DO $do$
DECLARE
    home regnamespace := (SELECT c.relnamespace FROM pg_catalog.pg_class c
                           WHERE c.oid = 'pgqueue_job'::regclass);
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT p.oid FROM pg_catalog.pg_proc p
         WHERE p.pronamespace = home AND p.proname IN (
               'pgqueue_begin_publish', 'pgqueue_channel', 'pgqueue_close_log_day',
               'pgqueue_dedup_key', 'pgqueue_enqueue', 'pgqueue_horizons',
               'pgqueue_installation', 'pgqueue_job_place', 'pgqueue_make_archive_day',
               'pgqueue_make_log_day', 'pgqueue_pattern_selects', 'pgqueue_patterns_of',
               'pgqueue_publish', 'pgqueue_repeat_calls', 'pgqueue_retake_keys',
               'pgqueue_store', 'pgqueue_store_message', 'pgqueue_store_messages',
               'pgqueue_store_unique')
    LOOP
        EXECUTE pg_catalog.format(
            'ALTER ROUTINE %s SET search_path = %s, pg_temp', routine, home);
    END LOOP;
END $do$;
