-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

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
        SELECT t.id, t.first_partition, t.partitions,
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
            state.first_partition + CASE WHEN $2 IS NULL
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
               (queue, task, args, headers, priority, max_attempts, message_id,
                lane, lane_capacity, lane_spacing, lane_burst, lane_policy)
        SELECT s.queue, s.task,
               jsonb_build_array(jsonb_build_object(
                   '__pgqueue__', 'message',
                   'value', jsonb_build_array(m.id, m.published_at))),
               m.headers || s.headers, s.priority, s.max_attempts, m.id,
               CASE WHEN s.lane_by IS NOT NULL THEN pgqueue_message_lane(
                   s.task, s.lane_by, $1, $2, $3) END,
               s.lane_capacity, s.lane_spacing, s.lane_burst, s.lane_policy
          FROM pgqueue_subscription s,
               (SELECT stored.id, stored.published_at, $3 AS payload, $4 AS headers) m
         WHERE s.id = ANY (state.wanted) AND s.disabled_at IS NULL
           AND (s.payload_filter IS NULL OR m.payload @> s.payload_filter)
        RETURNING CASE WHEN lane IS NULL THEN queue
                       WHEN lane_policy = 'fair' THEN '!fair:' || queue
                       ELSE '!lanes' END AS queue
    )
    SELECT count(*) AS jobs, coalesce(array_agg(DISTINCT job.queue), '{}') AS queues
      INTO made FROM job;
    RETURN json_build_array(stored.id, state.has_groups, made.jobs, made.queues);
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
    SELECT t.first_partition, t.partitions,
           coalesce((SELECT s.epoch FROM pgqueue_log_state s), 0) AS epoch,
           EXISTS (SELECT FROM pgqueue_subscription s
                    WHERE (s.topic = $1 OR s.topic IS NULL)
                      AND s.disabled_at IS NULL) AS has_subscriptions,
           EXISTS (SELECT FROM pgqueue_consumer_group g
                    WHERE g.topic_id = begun.topic_id) AS has_groups
      INTO state
      FROM pgqueue_topic t WHERE t.id = begun.topic_id;
    has_groups := state.has_groups;
    IF NOT state.has_subscriptions THEN
        WITH message AS (
        INSERT INTO pgqueue_message
               (epoch, topic_id, partition, name, key, payload, headers)
        SELECT state.epoch, begun.topic_id,
               state.first_partition + CASE WHEN item.value -> 1 = 'null'
                    THEN floor(random() * state.partitions)::integer
                    ELSE (hashtextextended(item.value ->> 1, 0)
                          & 9223372036854775807) % state.partitions END,
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
                      s.payload_filter, s.lane_by, s.lane_capacity, s.lane_spacing,
                      s.lane_burst, s.lane_policy
                 FROM pgqueue_subscription s
                WHERE s.pattern = ANY (called.patterns) AND s.disabled_at IS NULL
               OFFSET 0) route
    ), message AS (
        INSERT INTO pgqueue_message
               (epoch, topic_id, partition, name, key, payload, headers)
        SELECT coalesce((SELECT s.epoch FROM pgqueue_log_state s), 0), begun.topic_id,
               state.first_partition + CASE WHEN item.value -> 1 = 'null'
                    THEN floor(random() * state.partitions)::integer
                    ELSE (hashtextextended(item.value ->> 1, 0)
                          & 9223372036854775807) % state.partitions END,
               item.value ->> 0, item.value ->> 1, item.value -> 2, item.value -> 3
          FROM jsonb_array_elements(items) WITH ORDINALITY AS item(value, place)
         ORDER BY item.place
        RETURNING id, published_at, name, key, payload, headers
    ), job AS (
        INSERT INTO pgqueue_job
               (queue, task, args, headers, priority, max_attempts, message_id,
                lane, lane_capacity, lane_spacing, lane_burst, lane_policy)
        SELECT s.queue, s.task,
               jsonb_build_array(jsonb_build_object(
                   '__pgqueue__', 'message',
                   'value', jsonb_build_array(m.id, m.published_at))),
               m.headers || s.headers, s.priority, s.max_attempts, m.id,
               CASE WHEN s.lane_by IS NOT NULL THEN pgqueue_message_lane(
                   s.task, s.lane_by, m.name, m.key, m.payload) END,
               s.lane_capacity, s.lane_spacing, s.lane_burst, s.lane_policy
          FROM message m JOIN wanted s
            ON s.name = m.name
           AND (s.payload_filter IS NULL OR m.payload @> s.payload_filter)
         ORDER BY m.id
        RETURNING CASE WHEN lane IS NULL THEN queue
                       WHEN lane_policy = 'fair' THEN '!fair:' || queue
                       ELSE '!lanes' END AS queue
    )
    SELECT (SELECT array_agg(id ORDER BY id) FROM message),
           (SELECT coalesce(array_agg(DISTINCT queue), '{}') FROM job),
           (SELECT count(*) FROM job)
      INTO ids, queues, jobs;
END $$;

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
               'pgqueue_add_steps', 'pgqueue_advance', 'pgqueue_batch_moved',
               'pgqueue_batches_in', 'pgqueue_begin_publish',
               'pgqueue_capture', 'pgqueue_capture_less',
               'pgqueue_channel', 'pgqueue_close_log_day', 'pgqueue_close_workflow',
               'pgqueue_compensate', 'pgqueue_dedup_key', 'pgqueue_enqueue',
               'pgqueue_failure_of', 'pgqueue_horizons', 'pgqueue_insert_steps',
               'pgqueue_installation', 'pgqueue_job_place', 'pgqueue_jobs_gone',
               'pgqueue_letters_gone', 'pgqueue_lock_workflows',
               'pgqueue_make_archive_day',
               'pgqueue_make_log_day', 'pgqueue_meets', 'pgqueue_message_lane',
               'pgqueue_pattern_selects', 'pgqueue_patterns_of', 'pgqueue_promote',
               'pgqueue_publish', 'pgqueue_repeat_calls', 'pgqueue_restart_workflow',
               'pgqueue_results_of', 'pgqueue_retake_keys', 'pgqueue_start_steps',
               'pgqueue_start_workflow', 'pgqueue_steps_ended', 'pgqueue_store',
               'pgqueue_store_message', 'pgqueue_store_messages', 'pgqueue_store_steps',
               'pgqueue_store_unique', 'pgqueue_turns', 'pgqueue_watch')
    LOOP
        EXECUTE pg_catalog.format(
            'ALTER ROUTINE %s SET search_path = %s, pg_temp', routine, home);
    END LOOP;
END $do$;
