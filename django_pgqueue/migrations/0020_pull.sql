-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

-- pull_queue.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_queue(
    in_queue text,
    OUT visibility_seconds float8,
    OUT max_receives integer,
    OUT is_paused boolean
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    found_kind text;
BEGIN
    SELECT q.kind, coalesce(q.visibility_seconds, 30), coalesce(q.max_receives, 5),
           q.paused_at IS NOT NULL
           AND coalesce(q.paused_until > statement_timestamp(), true)
      INTO found_kind, visibility_seconds, max_receives, is_paused
      FROM pgqueue_queue q WHERE q.name = in_queue;
    IF found_kind IS DISTINCT FROM 'pull' THEN
        RAISE 'no pull queue is called %', in_queue
            USING ERRCODE = 'undefined_object',
                  HINT = CASE WHEN found_kind IS NULL
                      THEN format('Make it: SELECT pgqueue_declare_queue(%L)', in_queue)
                      ELSE 'It is a queue of tasks, whose jobs workers run.' END;
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_queue(text) FROM PUBLIC;

-- pull_lane.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_lane(in_queue text, in_lane text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF length(in_lane) > 128 THEN
        RAISE 'the lane %… has % characters: 128 are the most', left(in_lane, 50),
            length(in_lane)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Name it by a key or a hash.';
    END IF;
    RETURN 'pgqueue.pull:' || in_queue || ':' || nullif(in_lane, '');
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_lane(text, text) FROM PUBLIC;

-- check_send.sql
CREATE OR REPLACE FUNCTION pgqueue_check_send(
    in_delay float8, in_expires float8, in_max_receives integer
) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF in_delay NOT BETWEEN 0 AND 31622400 THEN
        RAISE 'delay_seconds is %: it is from 0 to 31622400 (366 days)', in_delay
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF in_expires NOT BETWEEN 0 AND 31622400 THEN
        RAISE 'expires_seconds is %: it is from 0 to 31622400 (366 days)', in_expires
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF in_max_receives NOT BETWEEN 1 AND 32767 THEN
        RAISE 'max_receives is %: it is from 1 to 32767', in_max_receives
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_check_send(float8, float8, integer) FROM PUBLIC;

-- pull_receipts.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_receipts(
    in_receipts text, OUT ids bigint[], OUT deliveries integer[]
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    numbers bigint[];
BEGIN
    IF (in_receipts ~ '^[0-9]{1,18}:[0-9]{1,9}(?: [0-9]{1,18}:[0-9]{1,9})*$')
       IS NOT TRUE THEN
        RAISE 'no receipts: "%"', left(in_receipts, 100)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'pgqueue_receive() returns them, such as 4711:2; of several, '
                      'write one blank between.';
    END IF;
    -- An id, its delivery, the next id, …
    numbers := string_to_array(translate(in_receipts, ':', ' '), ' ')::bigint[];
    IF cardinality(numbers) > 2000 THEN
        RAISE '% receipts in one call: 1000 are the most', cardinality(numbers) / 2
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Send several calls.';
    END IF;
    SELECT array_agg(read.id), array_agg(read.delivery) INTO ids, deliveries
      FROM (SELECT numbers[place] AS id, numbers[place + 1]::integer AS delivery
              FROM generate_series(1, cardinality(numbers), 2) AS place
             ORDER BY 1) read;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_receipts(text) FROM PUBLIC;

-- pull_answer.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_answer(
    in_ids bigint[], in_deliveries integer[], in_done bigint[]
) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN jsonb_build_object(
        'done', coalesce(cardinality(in_done), 0),
        'stale', CASE WHEN cardinality(in_done) = cardinality(in_ids) THEN '[]'::jsonb
            ELSE coalesce((
                SELECT jsonb_agg(asked.id || ':' || asked.delivery)
                  FROM unnest(in_ids, in_deliveries) AS asked(id, delivery)
                 WHERE asked.id <> ALL(coalesce(in_done, '{}'))), '[]') END);
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_answer(bigint[], integer[], bigint[])
    FROM PUBLIC;

-- pull_errors.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_errors(
    in_errors jsonb, in_kind text, in_message text, in_receiver text,
    in_attempt integer, in_delivery integer
) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE WHEN jsonb_array_length(in_errors) >= 100 THEN in_errors - 1
                ELSE in_errors END
        || jsonb_build_object(
            'kind', in_kind, 'worker', in_receiver, 'attempt', in_attempt,
            'delivery', in_delivery, 'at', statement_timestamp(),
            'message', left(in_message, 10000));
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_errors(
    jsonb, text, text, text, integer, integer) FROM PUBLIC;

-- pull_archive.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_archive(
    in_ids bigint[], in_deliveries integer[], in_state text, in_held boolean,
    OUT done bigint[], OUT queues text[]
) LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    today date := (statement_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
    IF to_regclass('pgqueue_archived_job_' || to_char(today, 'YYYYMMDD')) IS NULL THEN
        PERFORM pgqueue_make_archive_day(today);
    END IF;
    WITH gone AS (
        DELETE FROM pgqueue_job AS j
         USING unnest(in_ids, in_deliveries) AS ended(id, delivery)
         WHERE j.id = ended.id AND j.deliveries = ended.delivery
           AND j.task = 'pgqueue.pull' AND (j.leased_by IS NOT NULL OR NOT in_held)
        RETURNING j.*),
    kept AS (
        INSERT INTO pgqueue_archived_job (
                    id, queue, task, args, kwargs, headers, priority, run_after,
                    enqueued_at, expires_at, attempt, max_attempts, crashes, deliveries,
                    dedup_key, accumulate_key, lane, lane_capacity, lane_spacing,
                    lane_burst, lane_policy, progress, workflow_id, parent_id,
                    message_id, schedule_id,
                    errors, state, started_at, finished_at, worker)
        SELECT id, queue, task, args, kwargs, headers, priority, run_after,
                    enqueued_at, expires_at, attempt, max_attempts, crashes, deliveries,
                    dedup_key, accumulate_key, lane, lane_capacity, lane_spacing,
                    lane_burst, lane_policy, progress, workflow_id, parent_id,
                    message_id, schedule_id,
               errors, in_state, leased_at, statement_timestamp(), leased_by
          FROM gone)
    SELECT array_agg(id), array_agg(DISTINCT queue) FILTER (WHERE lane IS NOT NULL)
      INTO done, queues FROM gone;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_archive(bigint[], integer[], text, boolean)
    FROM PUBLIC;

-- pull_bury.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_bury(
    in_ids bigint[], in_deliveries integer[], in_reason text, in_kind text,
    in_message text, in_held boolean, OUT done bigint[], OUT queues text[]
) LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    WITH gone AS (
        DELETE FROM pgqueue_job AS j
         USING unnest(in_ids, in_deliveries) AS ended(id, delivery)
         WHERE j.id = ended.id AND j.deliveries = ended.delivery
           AND j.task = 'pgqueue.pull' AND (j.leased_by IS NOT NULL OR NOT in_held)
        RETURNING j.*),
    kept AS (
        INSERT INTO pgqueue_dead_letter (
                    id, queue, task, args, kwargs, headers, priority, run_after,
                    enqueued_at, expires_at, attempt, max_attempts, crashes, deliveries,
                    dedup_key, accumulate_key, lane, lane_capacity, lane_spacing,
                    lane_burst, lane_policy, progress, workflow_id, parent_id,
                    message_id, schedule_id,
                    queued_key, errors, reason, started_at, finished_at, worker)
        SELECT id, queue, task, args, kwargs, headers, priority, run_after,
                    enqueued_at, expires_at, attempt, max_attempts, crashes, deliveries,
                    dedup_key, accumulate_key, lane, lane_capacity, lane_spacing,
                    lane_burst, lane_policy, progress, workflow_id, parent_id,
                    message_id, schedule_id,
               queued_key,
               CASE WHEN in_kind IS NULL THEN errors
                    ELSE pgqueue_pull_errors(errors, in_kind, in_message, leased_by,
                                             attempt, deliveries) END,
               in_reason, leased_at, statement_timestamp(), leased_by
          FROM gone)
    SELECT array_agg(id), array_agg(DISTINCT queue) FILTER (WHERE lane IS NOT NULL)
      INTO done, queues FROM gone;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_bury(
    bigint[], integer[], text, text, text, boolean) FROM PUBLIC;

-- pull_heads.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_heads(in_queue text, in_limit integer)
RETURNS bigint[] LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    home bigint := 'pgqueue_job'::regclass::oid;
    start bigint := (random() * 18e18 - 9e18)::bigint;
    ids bigint[];
BEGIN
    -- What is no lane is where the walk begins, turns to the first one, or ends.
    WITH RECURSIVE lane(hash, name, id, priority, due_at, has_room, place, rooms,
                        has_turned, is_end) AS (
        SELECT start, ''::varchar, NULL::bigint, NULL::smallint, NULL::timestamptz,
               false, 0, 0, false, false
        UNION ALL
        SELECT coalesce(next.hash, -9223372036854775808), coalesce(next.name, ''),
               next.id, next.priority, next.due_at, coalesce(next.has_room, false),
               lane.place + 1, lane.rooms + coalesce(next.has_room, false)::integer,
               lane.has_turned OR next.name IS NULL,
               lane.has_turned AND next.name IS NULL
          FROM lane LEFT JOIN LATERAL (
               SELECT found.hash, found.name, head.id, head.priority,
                      head.lane_due_at AS due_at,
                      head.lane_due_at <= statement_timestamp()
                      AND (SELECT j.id FROM pgqueue_job j
                            WHERE (j.lane, coalesce(j.promotion, 0)) >= (found.name, 0)
                              AND j.lane <= found.name AND j.visible_at IS NOT NULL
                            ORDER BY j.lane, coalesce(j.promotion, 0) LIMIT 1) IS NULL
                      AND (SELECT l.name FROM pgqueue_lane l
                            WHERE l.name IN (found.name, 'pgqueue.pull')
                              AND l.paused_at IS NOT NULL
                              AND coalesce(l.paused_until > statement_timestamp(), true)
                            LIMIT 1) IS NULL AS has_room
                 FROM (SELECT hashtextextended(j.lane, 0) AS hash, j.lane AS name
                         FROM pgqueue_job j
                        WHERE (j.queue, hashtextextended(j.lane, 0), j.lane)
                              > (in_queue, lane.hash, lane.name)
                          AND (j.queue, hashtextextended(j.lane, 0))
                              <= (in_queue, CASE WHEN lane.has_turned THEN start - 1
                                                 ELSE 9223372036854775807 END)
                          AND j.visible_at IS NULL AND j.task = 'pgqueue.pull'
                        ORDER BY j.queue, hashtextextended(j.lane, 0), j.lane, j.id
                        LIMIT 1) found
                 LEFT JOIN LATERAL (
                      SELECT j.id, j.priority, j.lane_due_at FROM pgqueue_job j
                       WHERE (j.queue, hashtextextended(j.lane, 0), j.lane)
                             >= (in_queue, found.hash, found.name)
                         AND (j.queue, hashtextextended(j.lane, 0), j.lane)
                             <= (in_queue, found.hash, found.name)
                         AND j.visible_at IS NULL AND j.task = 'pgqueue.pull'
                         AND (j.deliveries = 0 OR j.lane_due_at <= statement_timestamp())
                       ORDER BY j.queue, hashtextextended(j.lane, 0), j.lane, j.id
                       LIMIT 1) head ON true) next ON true
         WHERE NOT lane.is_end AND lane.rooms < greatest(in_limit, 16)
           AND lane.place < 2000
    ), head AS MATERIALIZED (
        SELECT lane.name, lane.id, lane.priority, lane.due_at FROM lane
         WHERE lane.has_room
    ), band AS (
        SELECT (SELECT j.priority FROM pgqueue_job j
                 WHERE j.queue = in_queue AND j.visible_at <= statement_timestamp()
                 ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1) AS priority
         WHERE (SELECT count(*) FROM head) > 0
        UNION ALL
        SELECT (SELECT j.priority FROM pgqueue_job j
                 WHERE j.queue = in_queue AND j.priority < band.priority
                 ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1)
          FROM band WHERE band.priority IS NOT NULL
    )
    SELECT array_agg(chosen.id) INTO ids
      FROM (SELECT waiting.name, waiting.id
              FROM (SELECT head.name, head.id, head.priority, head.due_at FROM head
                    UNION ALL
                    SELECT NULL, due.id, due.priority, due.visible_at
                      FROM band
                     CROSS JOIN LATERAL (
                           SELECT j.id, j.priority, j.visible_at FROM pgqueue_job j
                            WHERE j.queue = in_queue AND j.priority = band.priority
                              AND j.visible_at <= statement_timestamp()
                            ORDER BY j.queue, j.priority DESC, j.visible_at
                            LIMIT in_limit) due) waiting
             ORDER BY waiting.priority DESC, waiting.due_at LIMIT in_limit) chosen
     WHERE chosen.name IS NOT NULL
       AND pg_try_advisory_xact_lock(
           706706, (hashtextextended(chosen.name, home) % 2147483647)::integer);
    RETURN ids;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_heads(text, integer) FROM PUBLIC;

-- declare_queue.sql
CREATE OR REPLACE FUNCTION pgqueue_declare_queue(
    queue text,
    visibility_seconds float8 DEFAULT NULL,
    max_receives integer DEFAULT NULL,
    in_changes boolean DEFAULT true
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    said record;
BEGIN
    SELECT q.kind, q.visibility_seconds, q.max_receives INTO said
      FROM pgqueue_queue q WHERE q.name = $1;
    IF said.kind = 'pull'
       AND (NOT in_changes
            OR (coalesce($2, said.visibility_seconds), coalesce($3, said.max_receives))
               IS NOT DISTINCT FROM (said.visibility_seconds, said.max_receives)) THEN
        RETURN;
    END IF;
    IF ($1 ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$') IS NOT TRUE OR $1 = 'default' THEN
        RAISE 'a pull queue cannot be called %: a name has 1 to 63 letters, digits, _, . '
            'and -, the first no . or -; and "default" is a queue of tasks', $1
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $2 NOT BETWEEN 1 AND 43200 THEN
        RAISE 'visibility_seconds of the queue % is %: it is from 1 to 43200 (12 hours)',
            $1, $2 USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $3 NOT BETWEEN 1 AND 32767 THEN
        RAISE 'max_receives of the queue % is %: it is from 1 to 32767', $1, $3
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Looked up again, by the statement that looks for jobs: somebody may have made it
    -- meanwhile, and sent to it.
    IF EXISTS (SELECT FROM pgqueue_job j WHERE j.queue = $1)
       AND NOT EXISTS (SELECT FROM pgqueue_queue q
                        WHERE q.name = $1 AND q.kind = 'pull') THEN
        RAISE 'the queue % has jobs of tasks, which nobody would run in a pull queue', $1
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Choose another name, or wait until they are done.';
    END IF;
    INSERT INTO pgqueue_queue AS q (name, kind, visibility_seconds, max_receives)
    VALUES ($1, 'pull', $2, $3)
    ON CONFLICT (name) DO UPDATE
       SET kind = 'pull',
           visibility_seconds = coalesce(EXCLUDED.visibility_seconds,
                                         q.visibility_seconds),
           max_receives = coalesce(EXCLUDED.max_receives, q.max_receives);
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_declare_queue(text, float8, integer, boolean)
    FROM PUBLIC;

-- send.sql
CREATE OR REPLACE FUNCTION pgqueue_send(
    queue text,
    payload jsonb,
    delay_seconds float8 DEFAULT NULL,
    lane text DEFAULT NULL,
    dedup_key text DEFAULT NULL,
    headers jsonb DEFAULT '{}',
    priority integer DEFAULT 0,
    expires_seconds float8 DEFAULT NULL,
    max_receives integer DEFAULT NULL,
    wakes boolean DEFAULT true
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    most integer := (SELECT coalesce($9, q.max_receives) FROM pgqueue_pull_queue($1) q);
    moment timestamptz := clock_timestamp();
    due_at timestamptz := CASE WHEN $3 > 0 THEN moment + make_interval(secs => $3) END;
    over_at timestamptz := moment + make_interval(secs => $8);
    stored bigint;
BEGIN
    IF num_nonnulls($3, $8, $9) > 0 THEN
        PERFORM pgqueue_check_send($3, $8, $9);
    END IF;
    IF $5 IS NULL THEN
        INSERT INTO pgqueue_job (task, args, queue, priority, run_after, expires_at,
                                 max_attempts, headers, lane)
        VALUES ('pgqueue.pull', jsonb_build_array($2), $1, $7, due_at, over_at, most,
                coalesce($6, '{}'),
                CASE WHEN $4 IS NOT NULL THEN pgqueue_pull_lane($1, $4) END)
        RETURNING id INTO STRICT stored;
    ELSIF $4 IS NOT NULL THEN
        RAISE 'pgqueue_send() got the dedup_key % and the lane %: a message has one of '
            'them', $5, $4
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave the other one out.';
    ELSE
        SELECT out_id INTO STRICT stored FROM pgqueue_store_unique(
            $1, 'pgqueue.pull', jsonb_build_array($2), '{}', coalesce($6, '{}'), $7,
            most, due_at, over_at, moment,
            pgqueue_dedup_key('pgqueue.pull:' || $1, to_jsonb($5)), 'queued|running',
            'skip', NULL, NULL, NULL, true);
    END IF;
    IF wakes THEN
        PERFORM pg_notify(pgqueue_channel(), '!pull:' || $1);
    END IF;
    RETURN stored;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_send(
    text, jsonb, float8, text, text, jsonb, integer, float8, integer, boolean)
    FROM PUBLIC;

-- send_many.sql
CREATE OR REPLACE FUNCTION pgqueue_send_many(
    queue text,
    payloads jsonb,
    delay_seconds float8 DEFAULT NULL,
    lanes jsonb DEFAULT NULL,
    headers jsonb DEFAULT '{}',
    priority integer DEFAULT 0,
    expires_seconds float8 DEFAULT NULL,
    max_receives integer DEFAULT NULL,
    wakes boolean DEFAULT true
) RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    most integer := (SELECT coalesce($8, q.max_receives) FROM pgqueue_pull_queue($1) q);
    moment timestamptz := clock_timestamp();
    due_at timestamptz := CASE WHEN $3 > 0 THEN moment + make_interval(secs => $3) END;
    over_at timestamptz := moment + make_interval(secs => $7);
BEGIN
    IF num_nonnulls($3, $7, $8) > 0 THEN
        PERFORM pgqueue_check_send($3, $7, $8);
    END IF;
    IF jsonb_typeof($2) IS DISTINCT FROM 'array' OR jsonb_array_length($2) > 10000 THEN
        RAISE 'payloads is no array of up to 10000 messages: %',
            coalesce(left($2::text, 50), 'NULL')
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Write [{"order": 1}, {"order": 2}]; more, in several calls.';
    END IF;
    IF $4 IS NULL THEN
        RETURN QUERY INSERT INTO pgqueue_job (
            task, args, queue, priority, run_after, expires_at, max_attempts, headers)
        SELECT 'pgqueue.pull', jsonb_build_array(item.value), $1, $6, due_at, over_at,
               most, coalesce($5, '{}')
          FROM jsonb_array_elements($2) WITH ORDINALITY AS item(value, place)
         ORDER BY item.place
        RETURNING id;
    ELSE
        IF jsonb_typeof($4) <> 'array'
           OR jsonb_array_length($4) <> jsonb_array_length($2) THEN
            RAISE 'lanes is no array of as many lanes as there are payloads (%): %',
                jsonb_array_length($2), left($4::text, 50)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Write ["c1", null]; null is a message in no lane.';
        END IF;
        RETURN QUERY INSERT INTO pgqueue_job (
            task, args, queue, priority, run_after, expires_at, max_attempts, headers,
            lane)
        SELECT 'pgqueue.pull', jsonb_build_array(item.value), $1, $6, due_at, over_at,
               most, coalesce($5, '{}'), pgqueue_pull_lane($1, item.lane)
          FROM ROWS FROM (jsonb_array_elements($2), jsonb_array_elements_text($4))
               WITH ORDINALITY AS item(value, lane, place)
         ORDER BY item.place
        RETURNING id;
    END IF;
    IF wakes THEN
        PERFORM pg_notify(pgqueue_channel(), '!pull:' || $1);
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_send_many(
    text, jsonb, float8, jsonb, jsonb, integer, float8, integer, boolean) FROM PUBLIC;

-- receive.sql
CREATE OR REPLACE FUNCTION pgqueue_receive(
    queue text,
    n integer DEFAULT 1,
    visibility_seconds float8 DEFAULT NULL,
    receiver text DEFAULT NULL
) RETURNS TABLE (
    receipt text, id bigint, deliveries integer, payload jsonb, headers jsonb, lane text,
    sent_at timestamptz, received_at timestamptz
) LANGUAGE plpgsql SECURITY DEFINER
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET enable_hashjoin = off
    SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    asked text := $1;
    most integer := $2;
    lasts interval;
    who text := left(coalesce(nullif($4, ''), session_user), 100);
    said record;
    has_lanes boolean;
    heads bigint[];
    wanted integer;
    level smallint;
    met record;
    ids bigint[];
    dues timestamptz[];
    delivered integer[];
    ends text[];
    ending text;
    count integer;
BEGIN
    SELECT * INTO said FROM pgqueue_pull_queue($1);
    IF (most BETWEEN 1 AND 1000) IS NOT TRUE THEN
        RAISE 'n is %: it is from 1 to 1000 messages', most
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $3 NOT BETWEEN 1 AND 43200 THEN
        RAISE 'visibility_seconds is %: it is from 1 to 43200 (12 hours)', $3
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF said.is_paused THEN
        RETURN;
    END IF;
    lasts := make_interval(secs => coalesce($3, said.visibility_seconds));
    FOR round IN 1..5 LOOP
        ids := '{}';
        dues := '{}';
        delivered := '{}';
        ends := '{}';
        wanted := most;
        level := NULL;
        has_lanes := (
            SELECT j.id FROM pgqueue_job j
             WHERE (j.queue, hashtextextended(j.lane, 0))
                   >= (asked, -9223372036854775808)
               AND j.queue <= asked AND j.visible_at IS NULL AND j.task = 'pgqueue.pull'
             ORDER BY j.queue, hashtextextended(j.lane, 0), j.lane, j.id LIMIT 1)
            IS NOT NULL;
        IF has_lanes AND current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE 'pgqueue_receive() needs READ COMMITTED where messages have lanes, and '
                'this transaction is %', current_setting('transaction_isolation')
                USING ERRCODE = 'active_sql_transaction';
        END IF;
        -- First of lanes, then of what is visible, one priority after the other.
        LOOP
            IF has_lanes THEN
                has_lanes := false;
                heads := pgqueue_pull_heads(asked, wanted);
                SELECT array_agg(head.id) AS ids, array_agg(head.lane_due_at) AS dues,
                       array_agg(head.deliveries) AS delivered,
                       array_agg(head.ends) AS ends INTO met
                  FROM (SELECT j.id, j.lane_due_at, j.deliveries,
                               CASE WHEN j.expires_at <= statement_timestamp()
                                    THEN 'expired'
                                    WHEN j.attempt >= j.max_attempts
                                    THEN 'exhausted' END AS ends
                          FROM pgqueue_job j
                         WHERE j.id = ANY(heads)
                           AND num_nonnulls(j.lane_due_at) = 1
                           AND (SELECT o.id FROM pgqueue_job o
                                 WHERE (o.lane, coalesce(o.promotion, 0)) >= (j.lane, 0)
                                   AND o.lane <= j.lane AND o.visible_at IS NOT NULL
                                 ORDER BY o.lane, coalesce(o.promotion, 0) LIMIT 1)
                               IS NULL
                           FOR UPDATE OF j SKIP LOCKED) head;
            ELSE
                level := (SELECT j.priority FROM pgqueue_job j
                           WHERE j.queue = asked AND j.priority < coalesce(level, 32767)
                           ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1);
                EXIT WHEN level IS NULL;
                SELECT array_agg(due.id) AS ids, array_agg(due.visible_at) AS dues,
                       array_agg(due.deliveries) AS delivered,
                       array_agg(due.ends) AS ends INTO met
                  FROM (SELECT j.id, j.visible_at, j.deliveries,
                               CASE WHEN j.cancel_requested_at IS NOT NULL
                                    THEN 'cancelled'
                                    WHEN j.expires_at <= statement_timestamp()
                                    THEN 'expired'
                                    WHEN j.attempt >= j.max_attempts
                                    THEN CASE WHEN j.leased_by IS NULL THEN 'exhausted'
                                              ELSE 'lease_expired' END END AS ends
                          FROM pgqueue_job j
                         WHERE j.queue = asked AND j.priority = level
                           AND j.visible_at <= statement_timestamp()
                           AND j.task = 'pgqueue.pull'
                         ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT wanted
                           FOR UPDATE SKIP LOCKED) due;
            END IF;
            ids := ids || met.ids;
            dues := dues || met.dues;
            delivered := delivered || met.delivered;
            ends := ends || met.ends;
            wanted := wanted - coalesce(num_nulls(VARIADIC met.ends), 0);
            EXIT WHEN wanted <= 0;
        END LOOP;
        RETURN QUERY
        WITH leased AS (
            UPDATE pgqueue_job AS j
               SET visible_at = statement_timestamp() + lasts, lane_due_at = NULL,
                   promotion = CASE WHEN j.lane IS NOT NULL
                                    THEN coalesce(j.promotion, 0) END,
                   leased_by = who, leased_at = statement_timestamp(),
                   attempt = least(j.attempt, 32766) + 1,
                   deliveries = least(j.deliveries, 999999998) + 1,
                   crashes = CASE WHEN j.leased_by IS NULL THEN j.crashes
                                  ELSE least(j.crashes, 32766) + 1 END,
                   errors = CASE WHEN j.leased_by IS NULL THEN j.errors
                       ELSE pgqueue_pull_errors(
                           j.errors, 'lease_expired', 'Its time was over, and its '
                           'receiver had neither acked nor extended it.',
                           j.leased_by, j.attempt, j.deliveries) END
              FROM unnest(ids, dues, ends) AS chosen(id, due_at, ends)
             WHERE j.id = chosen.id AND chosen.ends IS NULL
            RETURNING j.id, j.deliveries, j.args -> 0 AS payload, j.headers, j.lane,
                      j.enqueued_at, j.leased_at, j.priority, chosen.due_at)
        SELECT l.id || ':' || l.deliveries, l.id, l.deliveries, l.payload, l.headers,
               substr(l.lane, 14 + strpos(substr(l.lane, 14), ':')), l.enqueued_at,
               l.leased_at
          FROM leased l ORDER BY l.priority DESC, l.due_at;
        GET DIAGNOSTICS count = ROW_COUNT;
        most := most - count;
        EXIT WHEN count = cardinality(ids);
        FOREACH ending IN ARRAY ARRAY(
            SELECT DISTINCT gone.ends FROM unnest(ends) AS gone(ends)
             WHERE gone.ends IS NOT NULL)
        LOOP
            SELECT array_agg(gone.id) AS ids, array_agg(gone.delivery) AS delivered
              INTO met
              FROM unnest(ids, delivered, ends) AS gone(id, delivery, ends)
             WHERE gone.ends = ending;
            IF ending IN ('cancelled', 'expired') THEN
                PERFORM pgqueue_pull_archive(met.ids, met.delivered, ending, false);
            ELSE
                PERFORM pgqueue_pull_bury(
                    met.ids, met.delivered, ending,
                    CASE WHEN ending = 'lease_expired' THEN ending END,
                    'Its time was over, as often as it may be received.', false);
            END IF;
        END LOOP;
        EXIT WHEN most = 0;
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_receive(text, integer, float8, text) FROM PUBLIC;

-- due_in.sql
CREATE OR REPLACE FUNCTION pgqueue_due_in(queue text) RETURNS float8
LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET jit = off
AS $$
DECLARE
    level smallint;
    due_at timestamptz;
BEGIN
    level := (SELECT j.priority FROM pgqueue_job j WHERE j.queue = $1
               ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1);
    WHILE level IS NOT NULL LOOP
        due_at := least(due_at, (
            SELECT j.visible_at FROM pgqueue_job j
             WHERE j.queue = $1 AND j.priority = level
               AND j.visible_at > statement_timestamp()
             ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1));
        level := (SELECT j.priority FROM pgqueue_job j
                   WHERE j.queue = $1 AND j.priority < level
                   ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1);
    END LOOP;
    RETURN extract(epoch FROM due_at - statement_timestamp());
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_due_in(text) FROM PUBLIC;

-- ack.sql
CREATE OR REPLACE FUNCTION pgqueue_ack(receipts text, wakes boolean DEFAULT true)
RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    ours record;
    ended record;
BEGIN
    SELECT * INTO ours FROM pgqueue_pull_receipts($1);
    SELECT * INTO ended
      FROM pgqueue_pull_archive(ours.ids, ours.deliveries, 'succeeded', true);
    IF wakes AND ended.queues IS NOT NULL THEN
        PERFORM pg_notify(pgqueue_channel(), '!pull:' || queue)
           FROM unnest(ended.queues) AS queue;
    END IF;
    RETURN pgqueue_pull_answer(ours.ids, ours.deliveries, ended.done);
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_ack(text, boolean) FROM PUBLIC;

-- nack.sql
CREATE OR REPLACE FUNCTION pgqueue_nack(
    receipts text,
    delay_seconds float8 DEFAULT 0,
    error text DEFAULT NULL,
    wakes boolean DEFAULT true
) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    ours record;
    back record;
    buried bigint[];
    their_queues text[];
BEGIN
    IF ($2 BETWEEN 0 AND 31622400) IS NOT TRUE THEN
        RAISE 'delay_seconds is %: it is from 0 to 31622400 (366 days)', $2
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO ours FROM pgqueue_pull_receipts($1);
    WITH given AS (
        UPDATE pgqueue_job AS j
           SET visible_at = statement_timestamp() + make_interval(secs => $2),
               leased_by = NULL, leased_at = NULL,
               errors = CASE WHEN $3 IS NULL THEN j.errors
                             ELSE pgqueue_pull_errors(j.errors, 'error', $3, j.leased_by,
                                                      j.attempt, j.deliveries) END
          FROM unnest(ours.ids, ours.deliveries) AS held(id, delivery)
         WHERE j.id = held.id AND j.deliveries = held.delivery AND j.leased_by IS NOT NULL
           AND j.task = 'pgqueue.pull' AND j.attempt < j.max_attempts
        RETURNING j.id, j.queue)
    SELECT coalesce(array_agg(id), '{}') AS done, array_agg(DISTINCT queue) AS queues
      INTO back FROM given;
    IF cardinality(back.done) < cardinality(ours.ids) THEN
        SELECT done, queues INTO buried, their_queues FROM pgqueue_pull_bury(
            ours.ids, ours.deliveries, 'exhausted',
            CASE WHEN $3 IS NOT NULL THEN 'error' END, $3, true);
    END IF;
    IF wakes THEN
        PERFORM pg_notify(pgqueue_channel(), '!pull:' || queue)
           FROM (SELECT unnest(back.queues) UNION SELECT unnest(their_queues)) told(queue);
    END IF;
    RETURN pgqueue_pull_answer(ours.ids, ours.deliveries, back.done || buried)
        || jsonb_build_object('dead', coalesce(cardinality(buried), 0));
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_nack(text, float8, text, boolean) FROM PUBLIC;

-- reject.sql
CREATE OR REPLACE FUNCTION pgqueue_reject(
    receipts text, reason text DEFAULT NULL, wakes boolean DEFAULT true
) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    ours record;
    ended record;
BEGIN
    SELECT * INTO ours FROM pgqueue_pull_receipts($1);
    SELECT * INTO ended FROM pgqueue_pull_bury(
        ours.ids, ours.deliveries, 'rejected', 'error',
        coalesce($2, 'Rejected by its receiver.'), true);
    IF wakes AND ended.queues IS NOT NULL THEN
        PERFORM pg_notify(pgqueue_channel(), '!pull:' || queue)
           FROM unnest(ended.queues) AS queue;
    END IF;
    RETURN pgqueue_pull_answer(ours.ids, ours.deliveries, ended.done);
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_reject(text, text, boolean) FROM PUBLIC;

-- extend.sql
CREATE OR REPLACE FUNCTION pgqueue_extend(receipts text, visibility_seconds float8)
RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER
    SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    ours record;
    extended bigint[];
BEGIN
    IF ($2 BETWEEN 1 AND 43200) IS NOT TRUE THEN
        RAISE 'visibility_seconds is %: it is from 1 to 43200 (12 hours)', $2
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'pgqueue_nack() gives a message back at once.';
    END IF;
    SELECT * INTO ours FROM pgqueue_pull_receipts($1);
    WITH kept AS (
        UPDATE pgqueue_job AS j
           SET visible_at = statement_timestamp() + make_interval(secs => $2)
          FROM unnest(ours.ids, ours.deliveries) AS held(id, delivery)
         WHERE j.id = held.id AND j.deliveries = held.delivery
           AND j.leased_by IS NOT NULL AND j.task = 'pgqueue.pull'
        RETURNING j.id)
    SELECT array_agg(id) INTO extended FROM kept;
    RETURN pgqueue_pull_answer(ours.ids, ours.deliveries, extended);
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_extend(text, float8) FROM PUBLIC;

-- watch.sql
CREATE OR REPLACE FUNCTION pgqueue_watch(
    in_waits interval DEFAULT '5 min',
    in_lapsed interval DEFAULT '1 min',
    in_fresh interval DEFAULT '15 min',
    in_kept interval DEFAULT '7 days',
    in_limit integer DEFAULT 20
) RETURNS TABLE (
    kind text, subject text, change text, count integer, detail text, since timestamptz
) LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz;
    said record;
    more integer := 0;
    spoken integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(706708, 'pgqueue_job'::regclass::oid::integer) THEN
        RETURN;
    END IF;
    moment := clock_timestamp();
    FOR said IN
    WITH RECURSIVE band(queue, priority) AS (
        (SELECT j.queue, j.priority FROM pgqueue_job j
          ORDER BY j.queue, j.priority DESC LIMIT 1)
        UNION ALL
        SELECT next.queue, next.priority FROM band CROSS JOIN LATERAL (
              (SELECT j.queue, j.priority FROM pgqueue_job j
                WHERE j.queue = band.queue AND j.priority < band.priority
                ORDER BY j.queue, j.priority DESC LIMIT 1)
               UNION ALL
              (SELECT j.queue, j.priority FROM pgqueue_job j
                WHERE j.queue > band.queue
                ORDER BY j.queue, j.priority DESC LIMIT 1)
               LIMIT 1) next),
    due AS MATERIALIZED (
        SELECT old.queue, old.task = 'pgqueue.pull' AS is_pull,
               old.leased_by IS NOT NULL AND old.task <> 'pgqueue.pull' AS is_leased,
               moment - old.visible_at AS age
          FROM band
         CROSS JOIN LATERAL (
               SELECT j.queue, j.task, j.leased_by, j.visible_at FROM pgqueue_job j
                WHERE j.queue = band.queue AND j.priority = band.priority
                  AND j.visible_at <= moment - least(in_lapsed, in_waits)
                ORDER BY j.visible_at LIMIT 100) old
         WHERE NOT EXISTS (
               SELECT FROM pgqueue_queue q
                WHERE q.name = old.queue AND q.paused_at IS NOT NULL
                  AND coalesce(q.paused_until > moment, true))
           AND NOT EXISTS (
               SELECT FROM pgqueue_lane l
                WHERE l.name = old.task AND l.paused_at IS NOT NULL
                  AND coalesce(l.paused_until > moment, true))),
    live AS MATERIALIZED (
        SELECT w.queues FROM pgqueue_worker w
         WHERE w.heartbeat_at > moment - interval '1 min'),
    dead AS MATERIALIZED (
        SELECT d.task, d.reason, d.finished_at,
               coalesce(d.errors -> -1 ->> 'type', d.errors -> -1 ->> 'kind') AS class
          FROM pgqueue_dead_letter d
         WHERE d.finished_at > moment - in_fresh
         ORDER BY d.finished_at DESC LIMIT 1000),
    found(kind, subject, count, detail) AS MATERIALIZED (
        SELECT 'lapsed_leases', d.queue, count(*)::integer,
               format('leases of %s jobs ran out, and nobody has taken these; the first '
                      '%s ago', count(*), date_trunc('second', max(d.age)))
          FROM due d WHERE d.is_leased AND d.age > in_lapsed GROUP BY d.queue
        UNION ALL
        SELECT 'unclaimed_jobs', d.queue, count(*)::integer,
               format(CASE WHEN bool_and(d.is_pull)
                           THEN '%s messages have been due for more than %s, the first '
                                'for %s: nobody receives them'
                           ELSE '%s jobs have been due for more than %s, the first for '
                                '%s; %s living workers serve the queue' END,
                      count(*), in_waits, date_trunc('second', max(d.age)),
                      (SELECT count(*) FROM live
                        WHERE live.queues = '[]' OR live.queues ? d.queue))
          FROM due d WHERE NOT d.is_leased AND d.age > in_waits GROUP BY d.queue
        UNION ALL
        SELECT 'new_dead_letters', d.task, count(*)::integer,
               format('%s jobs gave up within %s, the last as %s%s', count(*), in_fresh,
                      (array_agg(d.reason ORDER BY d.finished_at DESC))[1],
                      coalesce(': ' || (array_agg(d.class ORDER BY d.finished_at DESC))[1],
                               ''))
          FROM dead d GROUP BY d.task
        UNION ALL
       (SELECT 'silent_schedules', s.name, 1,
               CASE WHEN s.error IS NOT NULL THEN 'its ticks cannot be issued'
                    ELSE format('a tick has been due since %s, and no worker has issued '
                                'it', s.next_tick) END
          FROM pgqueue_schedule s
         WHERE s.paused_at IS NULL AND s.withdrawn_at IS NULL
           AND (s.error IS NOT NULL OR s.next_tick < moment - in_lapsed)
         ORDER BY s.name LIMIT 100)
        UNION ALL
        SELECT 'halted_groups', left(g.topic || '/' || g.name, 275), count(*)::integer,
               format('%s partitions have halted (%s), the first since %s', count(*),
                      string_agg(DISTINCT p.halted_for, ', '), min(p.halted_at))
          FROM pgqueue_consumer_group g JOIN pgqueue_position p ON p.group_id = g.id
         WHERE p.halted_at IS NOT NULL GROUP BY g.topic, g.name
        UNION ALL
        SELECT 'stuck_sagas', w.name, count(*)::integer,
               format('%s sagas do not get on with undoing, since a compensation is '
                      'dead; the first is saga %s', count(*), min(w.id))
          FROM (SELECT w.id, w.name FROM pgqueue_workflow w
                 WHERE w.state = 'compensating' ORDER BY w.id LIMIT 1000) w
         CROSS JOIN LATERAL (
               SELECT FROM pgqueue_step s
                WHERE s.workflow_id BETWEEN w.id AND w.id AND s.kind = 'compensation'
                  AND s.state = 'dead'
                ORDER BY s.workflow_id, s.id LIMIT 1) s
         GROUP BY w.name),
    standing AS (
        INSERT INTO pgqueue_alert AS a
               (name, kind, subject, count, detail, began_at, said_at, said_count)
        SELECT f.kind || ':' || f.subject, f.kind, f.subject, f.count, f.detail, moment,
               moment, f.count
          FROM found f ORDER BY 1
        ON CONFLICT (name) DO UPDATE
           SET count = EXCLUDED.count, detail = EXCLUDED.detail, ended_at = NULL,
               began_at = CASE WHEN a.ended_at IS NULL THEN a.began_at
                               ELSE moment END,
               said_at = CASE WHEN a.ended_at IS NULL
                                   AND EXCLUDED.count < a.said_count * 10
                              THEN a.said_at ELSE moment END,
               said_count = CASE WHEN a.ended_at IS NULL
                                      AND EXCLUDED.count < a.said_count * 10
                                 THEN a.said_count ELSE EXCLUDED.count END
        RETURNING a.kind, a.subject, a.count, a.detail, a.began_at, a.said_at),
    over AS (
        UPDATE pgqueue_alert a SET ended_at = moment, said_at = moment
         WHERE a.ended_at IS NULL
           AND a.name <> ALL(ARRAY(SELECT f.kind || ':' || f.subject FROM found f))
        RETURNING a.kind, a.subject, a.count, a.detail, a.began_at),
    forgotten AS (
        DELETE FROM pgqueue_alert a
         WHERE a.name = ANY(ARRAY(
               SELECT old.name FROM pgqueue_alert old
                WHERE old.said_at < moment - in_kept AND old.ended_at IS NOT NULL
                ORDER BY old.said_at LIMIT 1000))
           AND a.name <> ALL(ARRAY(SELECT f.kind || ':' || f.subject FROM found f)))
    SELECT s.kind, s.subject, s.count, s.detail, s.began_at,
           CASE WHEN s.began_at = moment THEN 'begins' ELSE 'grows' END AS change
      FROM standing s WHERE s.said_at = moment
    UNION ALL
    SELECT o.kind, o.subject, o.count, o.detail, o.began_at, 'ends' FROM over o
     ORDER BY 6, 1, 2
    LOOP
        spoken := spoken + 1;
        IF spoken > in_limit THEN
            more := more + 1;
        ELSIF said.change = 'ends' THEN
            RAISE LOG 'pgqueue: % of % is over, after %', said.kind, said.subject,
                date_trunc('second', moment - said.began_at);
        ELSE
            RAISE WARNING 'pgqueue: % of %: %', said.kind, said.subject, said.detail;
        END IF;
        kind := said.kind;
        subject := said.subject;
        change := said.change;
        count := said.count;
        detail := said.detail;
        since := said.began_at;
        RETURN NEXT;
    END LOOP;
    IF more > 0 THEN
        RAISE WARNING 'pgqueue: % more alerts have changed: see pgqueue_alert', more;
    END IF;
    IF spoken > 0 THEN
        PERFORM pg_notify(pgqueue_channel(), '!alert');
    END IF;
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
               'pgqueue_ack', 'pgqueue_add_steps', 'pgqueue_advance',
               'pgqueue_batch_moved', 'pgqueue_batches_in', 'pgqueue_begin_publish',
               'pgqueue_capture', 'pgqueue_capture_less', 'pgqueue_channel',
               'pgqueue_check_send', 'pgqueue_close_log_day', 'pgqueue_close_workflow',
               'pgqueue_compensate', 'pgqueue_declare_queue', 'pgqueue_dedup_key',
               'pgqueue_due_in', 'pgqueue_enqueue', 'pgqueue_extend',
               'pgqueue_failure_of', 'pgqueue_horizons', 'pgqueue_insert_steps',
               'pgqueue_installation', 'pgqueue_job_place', 'pgqueue_jobs_gone',
               'pgqueue_letters_gone', 'pgqueue_lock_workflows',
               'pgqueue_make_archive_day', 'pgqueue_make_log_day', 'pgqueue_meets',
               'pgqueue_message_lane', 'pgqueue_nack', 'pgqueue_pattern_selects',
               'pgqueue_patterns_of', 'pgqueue_promote', 'pgqueue_publish',
               'pgqueue_pull_answer', 'pgqueue_pull_archive', 'pgqueue_pull_bury',
               'pgqueue_pull_errors', 'pgqueue_pull_heads', 'pgqueue_pull_lane',
               'pgqueue_pull_queue', 'pgqueue_pull_receipts', 'pgqueue_receive',
               'pgqueue_reject', 'pgqueue_repeat_calls', 'pgqueue_restart_workflow',
               'pgqueue_results_of', 'pgqueue_retake_keys', 'pgqueue_send',
               'pgqueue_send_many', 'pgqueue_start_steps', 'pgqueue_start_workflow',
               'pgqueue_steps_ended', 'pgqueue_store', 'pgqueue_store_message',
               'pgqueue_store_messages', 'pgqueue_store_steps', 'pgqueue_store_unique',
               'pgqueue_turns', 'pgqueue_watch')
    LOOP
        EXECUTE pg_catalog.format(
            'ALTER ROUTINE %s SET search_path = %s, pg_temp', routine, home);
    END LOOP;
END $do$;
