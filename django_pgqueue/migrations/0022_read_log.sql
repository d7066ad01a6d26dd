-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

-- commit_position.sql
CREATE OR REPLACE FUNCTION pgqueue_commit_position(receipt text, id bigint)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    parts constant text[] := pg_catalog.regexp_match(
        receipt, '^(\d{1,18}) (\d{1,18}) (\d{1,18}) (\S+)$');
    up_to constant bigint := id;
BEGIN
    IF parts IS NULL OR up_to IS NULL THEN
        RAISE EXCEPTION 'a position is committed by what pgqueue_read() gave as the '
            'receipt, and by an id; these are % and %', receipt, up_to
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF up_to > parts[3]::bigint THEN
        RAISE EXCEPTION 'the id % lies beyond the batch of this receipt, which ends '
            'with %', up_to, parts[3]
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE pgqueue_position AS p
       SET position = greatest(p.position, up_to),
           moved_at = pg_catalog.statement_timestamp(),
           failures = 0, retry_at = NULL, errors = NULL,
           single_to = CASE WHEN p.single_to > up_to THEN p.single_to END,
           leased_by = CASE WHEN up_to < parts[3]::bigint THEN p.leased_by END,
           leased_until = CASE WHEN up_to < parts[3]::bigint THEN p.leased_until END
     WHERE p.id = parts[1]::bigint AND p.fence = parts[2]::bigint
       AND p.leased_by = parts[4]
       AND p.leased_until > pg_catalog.statement_timestamp();
    RETURN FOUND;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_commit_position(text, bigint) FROM PUBLIC;

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
           g.paused_at
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
    -- A partition that was added since the group began has nothing from before it.
    INSERT INTO pgqueue_position (group_id, partition, position)
    SELECT of_group.id, added, t.removed_to
      FROM pgqueue_topic t,
           pg_catalog.generate_series(0, t.partitions - 1) added
     WHERE t.id = of_group.topic_id
       AND NOT EXISTS (SELECT FROM pgqueue_position p
                        WHERE p.group_id = of_group.id AND p.partition = added)
    ON CONFLICT DO NOTHING;
    LOOP
        SELECT p.id, p.partition, p.position, p.fence + 1 AS fence, p.failures,
               p.single_to, p.leased_by IS NOT NULL AS has_lapsed
          INTO claimed
          FROM pgqueue_position p
         WHERE p.group_id = of_group.id AND p.halted_at IS NULL
           AND (p.leased_until IS NULL OR p.leased_until <= at)
           AND (p.retry_at IS NULL OR p.retry_at <= at)
           AND (SELECT m.id FROM pgqueue_message m
                 WHERE m.topic_id = of_group.topic_id AND m.partition = p.partition
                   AND m.id > p.position AND m.id <= bound
                   AND m.published_at >= since
                 ORDER BY m.id LIMIT 1) IS NOT NULL
         ORDER BY p.last_read_at, p.id LIMIT 1
           FOR UPDATE OF p SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
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
                           AND m.id > claimed.position AND m.id <= bound
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
                       AND m.id > claimed.position AND m.id <= bound
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
               'pgqueue_horizons', 'pgqueue_insert_steps', 'pgqueue_installation',
               'pgqueue_job_place', 'pgqueue_jobs_gone', 'pgqueue_letters_gone',
               'pgqueue_lock_workflows', 'pgqueue_make_archive_day',
               'pgqueue_make_log_day', 'pgqueue_meets', 'pgqueue_message_lane',
               'pgqueue_nack', 'pgqueue_pattern_selects', 'pgqueue_patterns_of',
               'pgqueue_promote', 'pgqueue_publish', 'pgqueue_pull_answer',
               'pgqueue_pull_archive', 'pgqueue_pull_bury', 'pgqueue_pull_errors',
               'pgqueue_pull_heads', 'pgqueue_pull_lane', 'pgqueue_pull_queue',
               'pgqueue_pull_receipts', 'pgqueue_read', 'pgqueue_receive',
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
