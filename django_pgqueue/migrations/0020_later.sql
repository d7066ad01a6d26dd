-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

-- inbox.sql
CREATE OR REPLACE FUNCTION pgqueue_inbox(
    source text, external_id text
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pgqueue_inbox (source, external_id) VALUES ($1, $2)
        ON CONFLICT DO NOTHING;
    RETURN FOUND;
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
               'pgqueue_batches_in', 'pgqueue_begin_publish', 'pgqueue_capture',
               'pgqueue_capture_less', 'pgqueue_channel', 'pgqueue_close_log_day',
               'pgqueue_close_workflow', 'pgqueue_compensate', 'pgqueue_dedup_key',
               'pgqueue_enqueue', 'pgqueue_failure_of', 'pgqueue_horizons',
               'pgqueue_inbox', 'pgqueue_insert_steps', 'pgqueue_installation',
               'pgqueue_job_place', 'pgqueue_jobs_gone', 'pgqueue_letters_gone',
               'pgqueue_lock_workflows', 'pgqueue_make_archive_day',
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
