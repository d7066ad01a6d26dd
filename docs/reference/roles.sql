-- Roles with the least that each needs. Copy it, change the names, and run it as the
-- owner of the tables, who must be allowed to create roles, in a session that finds the
-- tables: psql -f roles.sql. Run it again after each upgrade, for tables that are new.
--
--   the owner         migrates, and removes days that are over. Nobody else needs it.
--   pgqueue_producer  enqueues and publishes; reads no arguments, leases no job
--   pgqueue_worker    what pgqueue_worker does, and acts of the admin and of commands
--   pgqueue_client    sends to pull queues and receives from them, and nothing else;
--                     reads no table
--   pgqueue_viewer    lists and numbers of the admin and of commands; arguments, too
--
-- Nobody logs in by these. Grant them to whoever does:
--
--   GRANT pgqueue_producer TO shop_web;
--
-- Not in here: what your own tasks and views do, and Django's tables in the same
-- database.

DO $$
DECLARE
    home regnamespace := (SELECT relnamespace FROM pg_class
                           WHERE oid = 'pgqueue_job'::regclass);
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY[
        'pgqueue_producer', 'pgqueue_worker', 'pgqueue_client',
        'pgqueue_viewer'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA %s TO %I', home, wanted);
    END LOOP;
END $$;

-- Producer: delay() and its kin, and pgqueue_enqueue(). Of the jobs that are there it
-- sees whether they hold a key, and no arguments.
GRANT INSERT,
      SELECT (id, queue, priority, run_after, visible_at, enqueued_at, lane,
              lane_policy)
    ON pgqueue_job TO pgqueue_producer;
GRANT EXECUTE ON FUNCTION
    pgqueue_channel, pgqueue_check_job, pgqueue_dedup_key, pgqueue_enqueue,
    pgqueue_job_place, pgqueue_store, pgqueue_store_unique
    TO pgqueue_producer;

-- Producer, where tasks have unique, debounce or throttle: a call may change or take
-- back what waits, but can lease nothing. Without such tasks, leave it out.
GRANT SELECT (dedup_key, queued_key, leased_by, expires_at, deliveries, headers),
      UPDATE (args, kwargs, headers, attempt, run_after, visible_at, expires_at,
              dedup_key, queued_key),
      DELETE
    ON pgqueue_job TO pgqueue_producer;
GRANT SELECT, INSERT, UPDATE ON pgqueue_dedup_window TO pgqueue_producer;
GRANT INSERT, DELETE, SELECT (id, key), UPDATE (id)
    ON pgqueue_dedup_call TO pgqueue_producer;

-- Producer, where tasks have accumulate.
GRANT SELECT (accumulate_key, task, leased_by, deliveries)
    ON pgqueue_job TO pgqueue_producer;

-- Producer, where queues have a depth_max.
GRANT SELECT (name, depth, depth_at), UPDATE (depth, depth_at)
    ON pgqueue_queue TO pgqueue_producer;

-- Producer, where mails go through the queue: it stores large files of theirs, once, and
-- reads none.
GRANT INSERT, SELECT (digest), UPDATE (digest) ON pgqueue_mail_file
    TO pgqueue_producer;
GRANT INSERT, SELECT (digest, job_id) ON pgqueue_mail_file_use TO pgqueue_producer;

-- Producer, where it starts workflows: chain(), chord(), batch() … It then can read
-- the arguments and the results of steps, which may be others' too; not those of jobs.
-- Without workflows, leave it out.
GRANT INSERT, SELECT,
      UPDATE (ends, steps, is_open, state, active, dead, skipped, finished_at)
    ON pgqueue_workflow TO pgqueue_producer;
GRANT INSERT, SELECT,
      UPDATE (waits, state, result, error, started_at, finished_at)
    ON pgqueue_step TO pgqueue_producer;
GRANT USAGE ON SEQUENCE pgqueue_job_id_seq TO pgqueue_producer;
GRANT EXECUTE ON FUNCTION
    pgqueue_add_steps, pgqueue_advance, pgqueue_batch_moved, pgqueue_batches_in,
    pgqueue_close_workflow, pgqueue_failure_of, pgqueue_insert_steps,
    pgqueue_lock_workflows, pgqueue_meets, pgqueue_results_of, pgqueue_start_steps,
    pgqueue_start_workflow, pgqueue_store_steps
    TO pgqueue_producer;

-- Producer: publish(), topics, and the jobs of their subscribers.
GRANT INSERT, SELECT (id, published_at) ON pgqueue_message TO pgqueue_producer;
GRANT INSERT, SELECT ON pgqueue_topic TO pgqueue_producer;
GRANT SELECT ON pgqueue_subscription, pgqueue_log_state, pgqueue_log_day
    TO pgqueue_producer;
GRANT SELECT (topic_id) ON pgqueue_consumer_group TO pgqueue_producer;
GRANT USAGE, SELECT ON SEQUENCE pgqueue_message_id_seq TO pgqueue_producer;
GRANT EXECUTE ON FUNCTION
    pgqueue_begin_publish, pgqueue_capture, pgqueue_capture_less, pgqueue_make_log_day,
    pgqueue_message_lane, pgqueue_pattern_selects, pgqueue_patterns_of,
    pgqueue_publish, pgqueue_schedule_messages, pgqueue_store_message,
    pgqueue_store_messages
    TO pgqueue_producer;

-- Producer, where it calls cancel_message(). It then could delete any waiting job, and
-- reads no arguments. Without it, leave it out: publish(run_after=...) needs no more
-- than delay().
GRANT SELECT (task), DELETE ON pgqueue_job TO pgqueue_producer;

-- Producer, where messages come in from outside: inbox(), and pgqueue_inbox(), which runs
-- as the owner of the tables. It is told whether one has come in, and reads none.
GRANT EXECUTE ON FUNCTION pgqueue_inbox TO pgqueue_producer;

-- Producer, where publish_many() is called for topics that have subscriptions, or rows
-- are written that are captured for them, or names of messages have more than six words:
-- these read back what they store, so that whoever may call them can read all messages.
-- Not granted unless you take the dashes away.
-- GRANT SELECT (name, key, payload, headers) ON pgqueue_message TO pgqueue_producer;

-- Client: pull queues, by these functions alone, which run as the owner of the tables.
-- Of any pull queue, since a function is granted or not. So that nobody's functions are
-- run for the owner: of the schema, nobody else may CREATE in it.
GRANT EXECUTE ON FUNCTION
    pgqueue_ack, pgqueue_channel, pgqueue_declare_queue, pgqueue_due_in,
    pgqueue_extend, pgqueue_nack, pgqueue_receive, pgqueue_reject, pgqueue_send,
    pgqueue_send_many
    TO pgqueue_client, pgqueue_worker;

-- What they are made of, which runs as whoever calls it.
GRANT EXECUTE ON FUNCTION
    pgqueue_check_send, pgqueue_pull_answer, pgqueue_pull_archive, pgqueue_pull_bury,
    pgqueue_pull_errors, pgqueue_pull_heads, pgqueue_pull_lane, pgqueue_pull_queue,
    pgqueue_pull_receipts
    TO pgqueue_worker;

-- Producer, where it sends to pull queues.
GRANT EXECUTE ON FUNCTION
    pgqueue_declare_queue, pgqueue_send, pgqueue_send_many
    TO pgqueue_producer;
-- A client that reads for a consumer group without a task needs two functions, and no
-- table: GRANT EXECUTE ON FUNCTION pgqueue_read, pgqueue_commit_position TO my_client;

-- Worker: all rows, and the days to come. It cannot drop days: for retention let it be
-- a member of the owner, or drop them yourself (see "Deploy workers").
GRANT SELECT, INSERT, UPDATE, DELETE ON
    pgqueue_alert, pgqueue_archived_job, pgqueue_bulk_act,
    pgqueue_consumer_group, pgqueue_dead_letter, pgqueue_dedup_call,
    pgqueue_dedup_window, pgqueue_durable_step, pgqueue_enqueued_hour, pgqueue_erasure,
    pgqueue_export, pgqueue_failure, pgqueue_failure_hour, pgqueue_generation,
    pgqueue_inbox, pgqueue_ingest_position, pgqueue_job, pgqueue_lane, pgqueue_log_day,
    pgqueue_log_state,
    pgqueue_mail_file, pgqueue_mail_file_use, pgqueue_message, pgqueue_output,
    pgqueue_permit, pgqueue_pipeline_run, pgqueue_position, pgqueue_pull_end,
    pgqueue_queue, pgqueue_schedule, pgqueue_signal,
    pgqueue_spark_write, pgqueue_step, pgqueue_subscription, pgqueue_task_hour,
    pgqueue_task_span, pgqueue_tick, pgqueue_topic, pgqueue_worker, pgqueue_workflow
    TO pgqueue_worker;
GRANT USAGE, SELECT ON SEQUENCE
    pgqueue_bulk_act_id_seq, pgqueue_consumer_group_id_seq, pgqueue_dedup_call_id_seq,
    pgqueue_erasure_id_seq, pgqueue_export_id_seq, pgqueue_failure_hour_id_seq,
    pgqueue_generation_id_seq, pgqueue_inbox_id_seq, pgqueue_job_id_seq,
    pgqueue_message_id_seq, pgqueue_pipeline_run_id_seq, pgqueue_position_id_seq,
    pgqueue_promotion, pgqueue_schedule_id_seq,
    pgqueue_signal_id_seq, pgqueue_subscription_id_seq, pgqueue_task_hour_id_seq,
    pgqueue_tick_id_seq, pgqueue_topic_id_seq, pgqueue_workflow_id_seq
    TO pgqueue_worker;
GRANT SELECT ON django_migrations TO pgqueue_worker;
GRANT EXECUTE ON FUNCTION
    pgqueue_add_steps, pgqueue_advance, pgqueue_batch_moved, pgqueue_batches_in,
    pgqueue_begin_publish, pgqueue_capture, pgqueue_capture_less, pgqueue_channel,
    pgqueue_check_job, pgqueue_close_log_day, pgqueue_close_workflow,
    pgqueue_commit_position, pgqueue_compensate, pgqueue_dedup_key, pgqueue_enqueue,
    pgqueue_failure_of, pgqueue_horizons, pgqueue_inbox, pgqueue_insert_steps,
    pgqueue_installation, pgqueue_job_place, pgqueue_jobs_gone, pgqueue_letters_gone,
    pgqueue_lock_workflows, pgqueue_make_archive_day, pgqueue_make_log_day,
    pgqueue_meets, pgqueue_message_lane, pgqueue_pattern_selects, pgqueue_patterns_of,
    pgqueue_promote, pgqueue_publish, pgqueue_read, pgqueue_repeat_calls,
    pgqueue_restart_workflow, pgqueue_results_of, pgqueue_retake_keys,
    pgqueue_schedule_messages, pgqueue_start_steps, pgqueue_start_workflow,
    pgqueue_steps_ended, pgqueue_store, pgqueue_store_message, pgqueue_store_messages,
    pgqueue_store_steps, pgqueue_store_unique, pgqueue_turns, pgqueue_unread,
    pgqueue_watch
    TO pgqueue_worker;

-- Viewer: all rows, arguments and results among them. What of them the admin shows is
-- said by Django's permissions.
GRANT SELECT ON
    pgqueue_alert, pgqueue_archived_job, pgqueue_bulk_act,
    pgqueue_consumer_group, pgqueue_dead_letter, pgqueue_dedup_call,
    pgqueue_dedup_window, pgqueue_durable_step, pgqueue_enqueued_hour, pgqueue_erasure,
    pgqueue_export, pgqueue_failure, pgqueue_failure_hour, pgqueue_generation,
    pgqueue_inbox, pgqueue_ingest_position, pgqueue_job, pgqueue_lane, pgqueue_log_day,
    pgqueue_log_state,
    pgqueue_mail_file, pgqueue_mail_file_use, pgqueue_message, pgqueue_output,
    pgqueue_permit, pgqueue_pipeline_run, pgqueue_position, pgqueue_pull_end,
    pgqueue_queue, pgqueue_schedule, pgqueue_signal,
    pgqueue_spark_write, pgqueue_step, pgqueue_subscription, pgqueue_task_hour,
    pgqueue_task_span, pgqueue_tick, pgqueue_topic, pgqueue_worker, pgqueue_workflow
    TO pgqueue_viewer;
GRANT SELECT ON SEQUENCE
    pgqueue_bulk_act_id_seq, pgqueue_consumer_group_id_seq, pgqueue_dedup_call_id_seq,
    pgqueue_erasure_id_seq, pgqueue_export_id_seq, pgqueue_failure_hour_id_seq,
    pgqueue_generation_id_seq, pgqueue_inbox_id_seq, pgqueue_job_id_seq,
    pgqueue_message_id_seq, pgqueue_pipeline_run_id_seq, pgqueue_position_id_seq,
    pgqueue_promotion, pgqueue_schedule_id_seq,
    pgqueue_signal_id_seq, pgqueue_subscription_id_seq, pgqueue_task_hour_id_seq,
    pgqueue_tick_id_seq, pgqueue_topic_id_seq, pgqueue_workflow_id_seq
    TO pgqueue_viewer;
GRANT SELECT ON django_migrations TO pgqueue_viewer;
GRANT EXECUTE ON FUNCTION
    pgqueue_channel, pgqueue_dedup_key, pgqueue_horizons, pgqueue_installation,
    pgqueue_pattern_selects, pgqueue_patterns_of
    TO pgqueue_viewer;
