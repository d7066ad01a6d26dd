-- Stores one message, and its jobs: what pgqueue_store_messages() does for many, in two
-- statements where there is no subscription. It returns JSON in a text, since a record
-- costs the server and the driver more: [id, has groups], and after that how many jobs,
-- and the queues with new ones, where a subscription wants it. '!lanes' among these
-- stands for those that wait in a lane, and '!fair:' before a queue for those in fair
-- ones. What a lane takes is copied without a look at whether the job has one: that
-- means nothing then, and a look costs every message.
--
-- Where a subscription refuses messages nothing is stored: the id is null, and instead
-- of queues there is '!full' and whose backlog that is. Such a one has a negative id
-- among those that are wanted. One that is held is not among them. What a trigger
-- publishes is let in: it is no call that could be refused, but somebody's write.
--
-- Called by log/publish.py and pgqueue_publish().
--
-- What it has to know is read by one statement, so epoch and subscriptions are of one
-- snapshot, and the sequence is read before the lock is taken, which is all that the
-- proof wants. The jobs are stored by a later statement, which asks for those
-- subscriptions alone: one that was disabled or deleted in between gets no job, as if
-- it had been so before. All of it happens in the snapshot of the caller's statement,
-- which a back-fill waits for.
--
-- Locks: those of pgqueue_begin_publish().
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
               coalesce(pg_sequence_last_value('pgqueue_message_id_seq'), 0) AS drawn,
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
          FROM pgqueue_topic t WHERE t.name = topic;
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
