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
               ARRAY(SELECT CASE WHEN s.full_at IS NOT NULL
                                      AND s.backlog_on_full = 'refuse'
                                      AND s.backlog_at > clock_timestamp()
                                                         - interval '30 seconds'
                                 THEN -s.id ELSE s.id END
                       FROM pgqueue_subscription s
                      WHERE s.pattern = ANY (patterns)
                        AND s.disabled_at IS NULL
                        AND s.held_at IS NULL) AS wanted,
               EXISTS (SELECT FROM pgqueue_consumer_group g
                        WHERE g.topic_id = t.id) AS has_groups
          INTO state
          FROM pgqueue_topic t, pgqueue_message_id_seq q WHERE t.name = topic;
        EXIT WHEN FOUND AND to_regclass(today) IS NOT NULL;
        PERFORM pgqueue_begin_publish(topic);
        today := 'pgqueue_message_'
            || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD');
    END LOOP;
    IF 0 > ANY (state.wanted) THEN
        SELECT ARRAY['!full', s.pattern, s.queue, s.task, s.backlog::text,
                     s.backlog_max::text] AS told
          INTO made FROM pgqueue_subscription s
         WHERE -s.id = ANY (state.wanted)
           AND (s.payload_filter IS NULL OR $3 @> s.payload_filter)
           AND pg_trigger_depth() = 0
         ORDER BY s.id LIMIT 1;
        IF FOUND THEN
            RETURN json_build_array(NULL, state.has_groups, 0, made.told);
        END IF;
        state.wanted := ARRAY(SELECT abs(each.id) FROM unnest(state.wanted) each(id));
    END IF;
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
           EXISTS (SELECT FROM pgqueue_subscription s
                    WHERE (s.topic = $1 OR s.topic IS NULL) AND s.disabled_at IS NULL
                      AND s.full_at IS NOT NULL AND s.backlog_on_full = 'refuse'
                  ) AS may_refuse,
           EXISTS (SELECT FROM pgqueue_consumer_group g
                    WHERE g.topic_id = begun.topic_id) AS has_groups
      INTO state
      FROM pgqueue_topic t WHERE t.id = begun.topic_id;
    has_groups := state.has_groups;
    IF state.may_refuse AND pg_trigger_depth() = 0
       AND coalesce(current_setting('pgqueue.admits', true), '') = '' THEN
        SELECT ARRAY['!full', s.pattern, s.queue, s.task, s.backlog::text,
                     s.backlog_max::text]
          INTO queues
          FROM pgqueue_subscription s, jsonb_array_elements(items) item(value)
         WHERE (s.topic = $1 OR s.topic IS NULL) AND s.disabled_at IS NULL
           AND s.full_at IS NOT NULL AND s.backlog_on_full = 'refuse'
           AND s.backlog_at > clock_timestamp() - interval '30 seconds'
           AND s.pattern = ANY (pgqueue_patterns_of(item.value ->> 0))
           AND (s.payload_filter IS NULL OR item.value -> 2 @> s.payload_filter)
         ORDER BY s.id LIMIT 1;
        IF FOUND THEN
            ids := '{}';
            jobs := 0;
            RETURN;
        END IF;
    END IF;
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
                  AND s.held_at IS NULL
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

-- read.sql
CREATE OR REPLACE FUNCTION pgqueue_read(consumer_group text, n integer DEFAULT 100)
RETURNS TABLE (id bigint, partition integer, name text, key text, payload jsonb,
               headers jsonb, published_at timestamptz, receipt text)
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    -- Of payloads and headers as text, together; one message always passes.
    bytes_max constant bigint := 16777216;
    at constant timestamptz := pg_catalog.statement_timestamp();
    reader constant text := pg_catalog.format('pull:%s/%s',
        pg_catalog.pg_backend_pid(), pg_catalog.gen_random_uuid());
    of_group record;
    claimed record;
    bound bigint;
    ends jsonb;
    up_to bigint;
    since timestamptz;
    last bigint;
BEGIN
    IF pg_catalog.current_setting('transaction_isolation')
       NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'a log cannot be read in a transaction of %: it does not see '
            'what was published since it began, and would pass over that; read in '
            'READ COMMITTED', pg_catalog.upper(
                pg_catalog.current_setting('transaction_isolation'))
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    IF n IS NULL OR n < 1 OR n > 10000 THEN
        RAISE EXCEPTION 'n = %: it must be from 1 to 10000', n
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT g.id, g.topic_id, g.task, g.lease_seconds, g.on_error, g.max_attempts,
           g.paused_at, g.is_merging
      INTO of_group
      FROM pgqueue_consumer_group g JOIN pgqueue_topic t ON t.id = g.topic_id
     WHERE t.name = pg_catalog.split_part(consumer_group, '/', 1)
       AND g.name = pg_catalog.split_part(consumer_group, '/', 2);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no consumer group %: write topic/group, and make it '
            'first, with topic("…").group("…").create()', consumer_group
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF of_group.task <> '' THEN
        RAISE EXCEPTION 'workers read for the group %: its task % would not get what '
            'is read here; make a group of your own', consumer_group, of_group.task
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF of_group.paused_at IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT h.bound INTO bound FROM pgqueue_horizons() h
     WHERE h.topic_id = of_group.topic_id OR h.topic_id IS NULL
     ORDER BY h.topic_id NULLS LAST LIMIT 1;
    SELECT g.is_merging INTO of_group.is_merging
      FROM pgqueue_consumer_group g WHERE g.id = of_group.id;
    -- Up to the first day that some partition has not read, as log/closed_days.py.
    SELECT coalesce((pg_catalog.min(d.day) + 1)::timestamp AT TIME ZONE 'UTC',
                    '-infinity')
      INTO since
      FROM pgqueue_log_day d,
           (SELECT pg_catalog.min(p.position) AS lowest FROM pgqueue_position p
             WHERE p.group_id = of_group.id) p
     WHERE d.last_id <= p.lowest
       AND NOT EXISTS (SELECT FROM pgqueue_log_day later
                        WHERE later.day = d.day + 1 AND later.last_id <= p.lowest);
    -- A partition that was added by hand since the group began has nothing from before.
    INSERT INTO pgqueue_position (group_id, partition, position)
    SELECT of_group.id, added, t.removed_to
      FROM pgqueue_topic t,
           pg_catalog.generate_series(
               t.first_partition::integer, t.first_partition + t.partitions - 1) added
     WHERE t.id = of_group.topic_id
       AND NOT EXISTS (SELECT FROM pgqueue_position p
                        WHERE p.group_id = of_group.id AND p.partition = added)
    ON CONFLICT DO NOTHING;
    LOOP
        IF of_group.is_merging THEN
            WITH part AS MATERIALIZED (
                SELECT p.partition::integer, p.fence,
                       coalesce(made.first_partition, p.partition)::integer AS first,
                       coalesce(made.partitions, 1)::integer AS partitions,
                       (SELECT m.id FROM pgqueue_message m
                         WHERE m.topic_id = of_group.topic_id
                           AND m.partition = p.partition
                           AND m.id > p.position AND m.id <= bound
                           AND m.published_at >= since
                         ORDER BY m.id LIMIT 1) AS unread
                  FROM pgqueue_position p
                  LEFT JOIN (
                       SELECT t.first_partition, t.partitions FROM pgqueue_topic t
                        WHERE t.id = of_group.topic_id
                        UNION ALL
                       SELECT e.first_partition, e.partitions FROM pgqueue_generation e
                        WHERE e.topic_id = of_group.topic_id) made
                    ON p.partition >= made.first_partition
                   AND p.partition < made.first_partition + made.partitions
                 WHERE p.group_id = of_group.id)
            SELECT pg_catalog.jsonb_object_agg(
                       mine.partition, pg_catalog.jsonb_build_array(
                           mine.fence, least(bound, (
                               SELECT pg_catalog.min(other.unread) - 1 FROM part other
                                WHERE other.first <> mine.first
                                  AND (other.partition - other.first) % pg_catalog.gcd(
                                          mine.partitions, other.partitions)
                                      = (mine.partition - mine.first) % pg_catalog.gcd(
                                          mine.partitions, other.partitions)))))
              INTO ends FROM part mine WHERE mine.unread IS NOT NULL;
            IF ends IS NULL THEN
                RETURN;
            END IF;
        END IF;
        SELECT p.id, p.partition, p.position, p.fence + 1 AS fence, p.failures,
               p.single_to, p.leased_by IS NOT NULL AS has_lapsed,
               ends -> p.partition::text AS found
          INTO claimed
          FROM pgqueue_position p
         WHERE p.group_id = of_group.id AND p.halted_at IS NULL
           AND (p.leased_until IS NULL OR p.leased_until <= at)
           AND (p.retry_at IS NULL OR p.retry_at <= at)
           AND (SELECT m.id FROM pgqueue_message m
                 WHERE m.topic_id = of_group.topic_id AND m.partition = p.partition
                   AND m.id > p.position
                   AND m.id <= CASE WHEN ends IS NULL THEN bound
                       ELSE (ends -> p.partition::text ->> 1)::bigint END
                   AND m.published_at >= since
                 ORDER BY m.id LIMIT 1) IS NOT NULL
         ORDER BY p.last_read_at, p.id LIMIT 1
           FOR UPDATE OF p SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        up_to := bound;
        IF ends IS NOT NULL THEN
            -- Somebody has read it, or sought, since: what was found is not true of it.
            CONTINUE WHEN (claimed.found ->> 0)::bigint <> claimed.fence - 1;
            up_to := (claimed.found ->> 1)::bigint;
        END IF;
        IF claimed.has_lapsed THEN
            claimed.failures := claimed.failures + 1;
            IF claimed.single_to IS NULL OR claimed.single_to <= claimed.position THEN
                -- Which of them it was has to be found: attempts are counted anew.
                claimed.failures := 0;
                SELECT pg_catalog.max(ahead.id) INTO claimed.single_to
                  FROM (SELECT m.id FROM pgqueue_message m
                         WHERE m.topic_id = of_group.topic_id
                           AND m.partition = claimed.partition
                           AND m.id > claimed.position AND m.id <= up_to
                           AND m.published_at >= since
                         ORDER BY m.id LIMIT n) ahead;
            END IF;
        END IF;
        EXIT WHEN of_group.on_error <> 'halt'
               OR claimed.failures < of_group.max_attempts;
        UPDATE pgqueue_position AS p
           SET halted_at = at, halted_for = 'error', failures = claimed.failures,
               leased_by = NULL, leased_until = NULL
         WHERE p.id = claimed.id;
    END LOOP;
    IF claimed.single_to > claimed.position THEN
        n := 1;
    END IF;
    SELECT pg_catalog.max(sized.id) INTO last
      FROM (SELECT m.id, m.size, pg_catalog.sum(m.size)
                       OVER (ORDER BY m.id ROWS UNBOUNDED PRECEDING) AS bytes
              FROM (SELECT m.id, pg_catalog.octet_length(m.payload::text)
                               + pg_catalog.octet_length(m.headers::text) AS size
                      FROM pgqueue_message m
                     WHERE m.topic_id = of_group.topic_id
                       AND m.partition = claimed.partition
                       AND m.id > claimed.position AND m.id <= up_to
                       AND m.published_at >= since
                     ORDER BY m.id LIMIT n) m) sized
     WHERE sized.bytes <= bytes_max OR sized.bytes = sized.size;
    UPDATE pgqueue_position AS p
       SET fence = claimed.fence, leased_by = reader,
           leased_until = at + pg_catalog.make_interval(secs => of_group.lease_seconds),
           last_read_at = pg_catalog.clock_timestamp(),
           failures = least(claimed.failures, 32000), single_to = claimed.single_to,
           errors = CASE WHEN claimed.has_lapsed THEN
               (CASE WHEN pg_catalog.jsonb_array_length(p.errors) >= 100
                     THEN p.errors - 1 ELSE coalesce(p.errors, '[]') END
                || pg_catalog.jsonb_build_object(
                    'kind', 'lease_expired', 'worker', p.leased_by, 'fence', p.fence,
                    'at', at, 'message',
                    'its reader died, or took longer than the lease'))
                ELSE p.errors END
     WHERE p.id = claimed.id;
    RETURN QUERY
        SELECT m.id, m.partition::integer, m.name::text, m.key::text, m.payload,
               m.headers, m.published_at,
               pg_catalog.concat_ws(' ', claimed.id, claimed.fence, last, reader)
          FROM pgqueue_message m
         WHERE m.topic_id = of_group.topic_id AND m.partition = claimed.partition
           AND m.id > claimed.position AND m.id <= last
           AND m.published_at >= since
         ORDER BY m.id;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_read(text, integer) FROM PUBLIC;

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
               'pgqueue_ack', 'pgqueue_add_steps', 'pgqueue_advance',
               'pgqueue_batch_moved', 'pgqueue_batches_in', 'pgqueue_begin_publish',
               'pgqueue_capture', 'pgqueue_capture_less', 'pgqueue_channel',
               'pgqueue_check_send', 'pgqueue_close_log_day', 'pgqueue_close_workflow',
               'pgqueue_commit_position', 'pgqueue_compensate',
               'pgqueue_declare_queue', 'pgqueue_dedup_key', 'pgqueue_due_in',
               'pgqueue_enqueue', 'pgqueue_extend', 'pgqueue_failure_of',
               'pgqueue_horizons', 'pgqueue_inbox', 'pgqueue_insert_steps',
               'pgqueue_installation', 'pgqueue_job_place', 'pgqueue_jobs_gone',
               'pgqueue_letters_gone', 'pgqueue_lock_workflows',
               'pgqueue_make_archive_day', 'pgqueue_make_log_day', 'pgqueue_meets',
               'pgqueue_message_lane', 'pgqueue_nack', 'pgqueue_pattern_selects',
               'pgqueue_patterns_of', 'pgqueue_promote', 'pgqueue_publish',
               'pgqueue_pull_answer', 'pgqueue_pull_archive', 'pgqueue_pull_bury',
               'pgqueue_pull_errors', 'pgqueue_pull_heads', 'pgqueue_pull_lane',
               'pgqueue_pull_queue', 'pgqueue_pull_receipts', 'pgqueue_read',
               'pgqueue_receive', 'pgqueue_reject', 'pgqueue_repeat_calls',
               'pgqueue_restart_workflow', 'pgqueue_results_of', 'pgqueue_retake_keys',
               'pgqueue_schedule_messages', 'pgqueue_send', 'pgqueue_send_many',
               'pgqueue_start_steps', 'pgqueue_start_workflow', 'pgqueue_steps_ended',
               'pgqueue_store', 'pgqueue_store_message', 'pgqueue_store_messages',
               'pgqueue_store_steps', 'pgqueue_store_unique', 'pgqueue_turns',
               'pgqueue_watch')
    LOOP
        EXECUTE pg_catalog.format(
            'ALTER ROUTINE %s SET search_path = %s, pg_temp', routine, home);
    END LOOP;
END $do$;
