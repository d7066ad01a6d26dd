-- Pins: functions of ours find what they name in the schema that they stand in.
--
-- A migration that makes or replaces a function ends with this, since CREATE OR REPLACE
-- forgets what a function had before. All of ours but pgqueue_check_job(), which is
-- called for each row: its body qualifies all that it uses.
--
-- pg_catalog is not said, and so comes first: what is said first is where a function
-- would make its tables. pg_temp is said, or it would come before all others. The
-- schema is the one that holds our tables, however the migrating session has come to
-- it.
--
-- Locks: none that a call of a function waits for.
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
               'pgqueue_make_archive_day', 'pgqueue_make_day',
               'pgqueue_make_log_day', 'pgqueue_meets',
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
               'pgqueue_unread', 'pgqueue_watch')
    LOOP
        EXECUTE pg_catalog.format(
            'ALTER ROUTINE %s SET search_path = %s, pg_temp', routine, home);
    END LOOP;
END $do$;
