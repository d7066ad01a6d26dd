-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

-- pull_receipts.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_receipts(
    in_receipts text, OUT ids bigint[], OUT deliveries integer[]
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    texts text[];
BEGIN
    -- One is read by expressions alone, without a query: most calls have one.
    IF in_receipts ~ '^[0-9]{1,18}:[0-9]{1,9}$' THEN
        ids := ARRAY[split_part(in_receipts, ':', 1)::bigint];
        deliveries := ARRAY[split_part(in_receipts, ':', 2)::integer];
        RETURN;
    END IF;
    IF (in_receipts ~ '^[0-9]{1,18}:[0-9]{1,9}(?: [0-9]{1,18}:[0-9]{1,9})*$')
       IS NOT TRUE THEN
        RAISE 'no receipts: "%"', left(in_receipts, 100)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'pgqueue_receive() returns them, such as 4711:2; of several, '
                      'write one blank between.';
    END IF;
    texts := string_to_array(in_receipts, ' ');
    IF cardinality(texts) > 1000 THEN
        RAISE '% receipts in one call: 1000 are the most', cardinality(texts)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Send several calls.';
    END IF;
    SELECT array_agg(read.id), array_agg(read.delivery) INTO ids, deliveries
      FROM (SELECT split_part(told, ':', 1)::bigint AS id,
                   split_part(told, ':', 2)::integer AS delivery
              FROM unnest(texts) AS told ORDER BY 1) read;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_receipts(text) FROM PUBLIC;

-- pull_answer.sql
CREATE OR REPLACE FUNCTION pgqueue_pull_answer(
    in_ids bigint[], in_deliveries integer[], in_done bigint[]
) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- Without a query: of most calls none is stale.
    IF cardinality(in_done) = cardinality(in_ids) THEN
        RETURN jsonb_build_object('done', cardinality(in_done), 'stale', '[]'::jsonb);
    END IF;
    RETURN jsonb_build_object(
        'done', coalesce(cardinality(in_done), 0),
        'stale', coalesce((
            SELECT jsonb_agg(asked.id || ':' || asked.delivery)
              FROM unnest(in_ids, in_deliveries) AS asked(id, delivery)
             WHERE asked.id <> ALL(coalesce(in_done, '{}'))), '[]'));
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_answer(bigint[], integer[], bigint[])
    FROM PUBLIC;

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
          FROM gone),
    counted AS (
        INSERT INTO pgqueue_pull_end (queues, outcome, waits, runs)
        SELECT array_agg(queue), in_state,
               array_agg(date_part('epoch', CASE
                   WHEN in_held THEN leased_at - coalesce(run_after, enqueued_at)
                   ELSE statement_timestamp() - coalesce(lane_due_at, visible_at)
                   END)::real),
               array_agg(CASE WHEN in_held THEN date_part(
                   'epoch', statement_timestamp() - leased_at)::real END)
          FROM gone HAVING count(*) > 0)
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
          FROM gone),
    counted AS (
        INSERT INTO pgqueue_pull_end (queues, outcome, waits, runs)
        SELECT array_agg(queue), 'dead',
               array_agg(date_part('epoch', CASE
                   WHEN in_held THEN leased_at - coalesce(run_after, enqueued_at)
                   ELSE statement_timestamp() - coalesce(lane_due_at, visible_at)
                   END)::real),
               array_agg(CASE WHEN in_held THEN date_part(
                   'epoch', statement_timestamp() - leased_at)::real END)
          FROM gone HAVING count(*) > 0)
    SELECT array_agg(id), array_agg(DISTINCT queue) FILTER (WHERE lane IS NOT NULL)
      INTO done, queues FROM gone;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_pull_bury(
    bigint[], integer[], text, text, text, boolean) FROM PUBLIC;

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
          -- As it was received: what is returned of j is what was written.
          JOIN pgqueue_job AS o ON o.id = held.id AND o.deliveries = held.delivery
         WHERE j.id = held.id AND j.deliveries = held.delivery AND j.leased_by IS NOT NULL
           AND j.task = 'pgqueue.pull' AND j.attempt < j.max_attempts
        RETURNING j.id, j.queue, o.leased_at,
                  o.leased_at - coalesce(o.run_after, o.enqueued_at) AS waited),
    counted AS (
        INSERT INTO pgqueue_pull_end (queues, outcome, waits, runs)
        SELECT array_agg(queue), 'retried', array_agg(date_part('epoch', waited)::real),
               array_agg(
                   date_part('epoch', statement_timestamp() - leased_at)::real)
          FROM given HAVING count(*) > 0)
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
                   -- Since when it was due: its end is counted with how long it waited.
                   run_after = CASE
                       WHEN num_nonnulls(j.run_after, nullif(j.deliveries, 0)) > 0
                       THEN chosen.due_at END,
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
