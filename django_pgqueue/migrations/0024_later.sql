-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

-- inbox.sql
CREATE OR REPLACE FUNCTION pgqueue_inbox(
    source text, external_id text
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO pgqueue_inbox (source, external_id) VALUES ($1, $2)
        ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_inbox(text, text) FROM PUBLIC;

-- schedule_messages.sql
CREATE OR REPLACE FUNCTION pgqueue_schedule_messages(
    items jsonb,
    now timestamptz,
    OUT ids bigint[],
    OUT seconds float8
) LANGUAGE plpgsql AS $$
BEGIN
    WITH moment AS (
        SELECT item.value, item.place,
               coalesce((item.value ->> 4)::timestamptz,
                        now + (item.value ->> 5)::float8 * interval '1 second') AS at
          FROM jsonb_array_elements(items) WITH ORDINALITY AS item(value, place)
    ), stored AS (
        INSERT INTO pgqueue_scheduled_message AS m
               (topic, name, key, payload, headers, run_after, due_at)
        SELECT split_part(moment.value ->> 0, '.', 1), moment.value ->> 0,
               moment.value ->> 1, moment.value -> 2, moment.value -> 3,
               moment.at, moment.at
          FROM moment ORDER BY moment.place
        RETURNING m.id, m.due_at
    )
    SELECT array_agg(stored.id ORDER BY stored.id DESC),
           extract(epoch FROM min(stored.due_at) - now)::float8
      INTO ids, seconds FROM stored;
END $$;

-- publish.sql
CREATE OR REPLACE FUNCTION pgqueue_publish(
    name text,
    payload jsonb,
    key text DEFAULT NULL,
    headers jsonb DEFAULT '{}',
    run_after timestamptz DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    stored jsonb;
    scheduled record;
BEGIN
    IF name !~ '^[A-Za-z0-9_-]{1,63}([.][A-Za-z0-9_-]+)*$' OR length(name) > 255 THEN
        RAISE EXCEPTION 'a message cannot be called %: write words of letters, '
            'digits, _ and - with dots between, such as orders.created', name
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF run_after IS NOT NULL THEN
        scheduled := pgqueue_schedule_messages(
            jsonb_build_array(jsonb_build_array(
                name, key, coalesce(payload, 'null'), headers, run_after)),
            clock_timestamp());
        IF scheduled.seconds < 5 THEN
            PERFORM pg_notify(pgqueue_channel(), '!schedules');
        END IF;
        RETURN scheduled.ids[1];
    END IF;
    stored := pgqueue_store_message(name, key, coalesce(payload, 'null'), headers);
    IF stored -> 0 = 'null' THEN
        RAISE EXCEPTION 'the subscription to % in queue % is full: % of at most % jobs',
            stored #>> '{3,1}', stored #>> '{3,2}', stored #>> '{3,4}',
            stored #>> '{3,5}' USING ERRCODE = 'configuration_limit_exceeded';
    END IF;
    PERFORM pg_notify(pgqueue_channel(), queue)
       FROM jsonb_array_elements_text(stored -> 3) queue;
    IF (stored -> 1)::boolean THEN
        PERFORM pg_notify(pgqueue_channel(), '!topic ' || split_part(name, '.', 1));
    END IF;
    RETURN stored -> 0;
END $$;

-- scheduled_is_sound.sql
ALTER TABLE pgqueue_scheduled_message ADD CONSTRAINT pgqueue_scheduled_is_sound CHECK (
    id < 0
    AND name ~ '^[A-Za-z0-9_-]{1,63}([.][A-Za-z0-9_-]+)*$'
    AND topic = split_part(name, '.', 1)
    AND jsonb_typeof(headers) = 'object'
    AND run_after BETWEEN '1900-01-01 00:00Z' AND '9999-01-01 00:00Z'
    AND due_at BETWEEN '1900-01-01 00:00Z' AND '9999-01-01 00:00Z'
);

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
