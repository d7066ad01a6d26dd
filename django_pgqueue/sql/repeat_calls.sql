-- Makes calls again that were written down and have committed, without any lock on a
-- holder: a job that is seen waiting now starts later than they were committed. In a
-- random order, so that calls which stay keep no others waiting.
--
-- Called by queues/unique.py.
--
-- Locks: row locks on the calls, until the statement ends; SKIP LOCKED passes over
-- those that a later call of the key has taken back and not committed. Of each key that
-- is free, its entry in the unique index. Waits for a key that somebody has taken and
-- not committed for 10 ms: that call stays, and is tried again.
CREATE OR REPLACE FUNCTION pgqueue_repeat_calls(
    in_calls integer,
    OUT out_id bigint,
    OUT out_queue text,
    OUT out_outcome text
) RETURNS SETOF record LANGUAGE plpgsql SET lock_timeout = '10ms' AS $$
#variable_conflict use_column
DECLARE
    call record;
BEGIN
    FOR call IN
        WITH free AS MATERIALIZED (
            SELECT * FROM pgqueue_dedup_call c
             ORDER BY random() LIMIT in_calls FOR UPDATE SKIP LOCKED)
        SELECT * FROM free ORDER BY key COLLATE "C", id
    LOOP
        out_queue := call.queue;
        BEGIN
            SELECT stored.out_id, coalesce(stored.out_conflict, 'stored')
              INTO out_id, out_outcome
              FROM pgqueue_store_unique(
                   call.queue, call.task, call.args, call.kwargs, call.headers,
                   call.priority, call.max_attempts, call.run_after, call.expires_at,
                   clock_timestamp(), call.key, call.hold, 'skip', NULL, call.period,
                   call.jobs, false) AS stored;
            DELETE FROM pgqueue_dedup_call c WHERE c.id = call.id;
        EXCEPTION
            WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
                out_id := call.holder_id;
                out_outcome := 'waits';
            WHEN OTHERS THEN
                out_id := call.holder_id;
                out_outcome := 'failed: ' || SQLERRM;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
