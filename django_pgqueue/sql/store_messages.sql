-- Stores messages of one topic, and a job for each subscription that wants one: one
-- statement, so that both see the same subscriptions and the same epoch.
--
-- Where a subscription refuses messages nothing is stored, unless the setting
-- pgqueue.admits says something, or a trigger publishes: there are no ids, and instead of
-- queues there is '!full' and whose backlog that is.
--
-- Called by log/publish.py and pgqueue_store_message().
--
-- An item is [name, key, payload, headers]; ids rise in the order of the items. A job
-- refers to its message, by id and time, and holds no payload; of jobs that wait in a
-- lane, the queues are what pgqueue_store_message() says. Where a topic has no
-- subscription, the statement that has seen so has seen the epoch, too; and all of it
-- happens in the snapshot of the caller's statement, which a back-fill waits for. Each
-- name that occurs is looked up once: OFFSET 0 keeps the lookup apart, through the
-- index of the patterns. Which partitions there are is read in one statement: the first
-- of one generation with the count of another would be partitions of neither.
--
-- Locks: those of pgqueue_begin_publish().
CREATE OR REPLACE FUNCTION pgqueue_store_messages(
    topic text,
    items jsonb,
    OUT ids bigint[],
    OUT queues text[],
    OUT jobs integer,
    OUT has_groups boolean
) LANGUAGE plpgsql AS $$
DECLARE
    into_topic integer;
    state record;
BEGIN
    into_topic := pgqueue_begin_publish(topic);
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
                    WHERE g.topic_id = into_topic) AS has_groups
      INTO state
      FROM pgqueue_topic t WHERE t.id = into_topic;
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
        SELECT state.epoch, into_topic,
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
        SELECT coalesce((SELECT s.epoch FROM pgqueue_log_state s), 0), into_topic,
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
