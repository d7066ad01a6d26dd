-- Jobs that went back to their queues take their keys again. Never raises for what it
-- meets: an attempt has been settled by now, and its worker goes on. The later of two
-- twins comes first.
--
-- Called by queues/unique.py.
--
-- Locks: of each key that is free, its entry in the unique index, and a row lock on the
-- job, until the statement ends. Waits in_patience for a key that somebody has taken
-- and not committed; such a job is answered as 'waits', so that whoever calls may ask
-- again for it alone: one that holds keys should not wait for others.
CREATE OR REPLACE FUNCTION pgqueue_retake_keys(
    in_ids bigint[],
    in_ran boolean[],
    in_patience text,
    OUT out_id bigint,
    OUT out_outcome text,
    OUT out_holder bigint
) RETURNS SETOF record LANGUAGE plpgsql SET lock_timeout = '10ms' AS $$
#variable_conflict use_column
DECLARE
    job record;
BEGIN
    PERFORM set_config('lock_timeout', in_patience, true);
    FOR job IN
        SELECT j.id, j.queued_key AS key, back.ran
          FROM unnest(in_ids, in_ran) AS back(id, ran)
          JOIN pgqueue_job j ON j.id = back.id
         WHERE j.id = ANY(in_ids) AND j.queued_key IS NOT NULL
           AND j.dedup_key IS NULL AND j.leased_by IS NULL
           AND j.cancel_requested_at IS NULL
         ORDER BY j.queued_key COLLATE "C", j.id DESC
    LOOP
        out_id := job.id;
        FOR round IN 1..10 LOOP
            out_outcome := 'without';
            out_holder := NULL;
            BEGIN
                UPDATE pgqueue_job AS j SET dedup_key = job.key
                 WHERE j.id = job.id AND j.dedup_key IS NULL AND j.leased_by IS NULL;
                IF FOUND THEN
                    out_outcome := 'taken';
                END IF;
                EXIT;
            EXCEPTION
                WHEN unique_violation THEN
                    NULL;
                WHEN lock_not_available OR deadlock_detected THEN
                    out_outcome := 'waits';
                    EXIT;
            END;
            SELECT j.id INTO out_holder FROM pgqueue_job j WHERE j.dedup_key = job.key;
            CONTINUE WHEN NOT FOUND;
            IF job.ran THEN
                BEGIN
                    WITH gone AS (
                        DELETE FROM pgqueue_job AS j
                         WHERE j.id = job.id AND j.leased_by IS NULL
                        RETURNING j.*)
                    INSERT INTO pgqueue_archived_job (
                        id, queue, task, args, kwargs, headers, priority, run_after,
                        enqueued_at, expires_at, attempt, max_attempts, crashes,
                        deliveries, lane, lane_capacity, lane_spacing, lane_burst,
                        lane_policy, progress, workflow_id, parent_id, message_id,
                        schedule_id, dedup_key, errors, state, finished_at)
                    SELECT g.id, g.queue, g.task, g.args, g.kwargs, g.headers,
                           g.priority, g.run_after, g.enqueued_at, g.expires_at,
                           g.attempt, g.max_attempts, g.crashes, g.deliveries, g.lane,
                           g.lane_capacity, g.lane_spacing, g.lane_burst,
                           g.lane_policy, g.progress, g.workflow_id, g.parent_id, g.message_id, g.schedule_id,
                           g.queued_key,
                           CASE WHEN jsonb_array_length(g.errors) >= 100
                                THEN g.errors - 1 ELSE g.errors END
                           || jsonb_build_object(
                               'kind', 'superseded', 'holder', out_holder,
                               'attempt', g.attempt, 'delivery', g.deliveries,
                               'at', statement_timestamp(),
                               'message', 'Job ' || out_holder || ' has its dedup key '
                                   'by now and does the work: this one ends here.'),
                           'cancelled', statement_timestamp()
                      FROM gone g;
                    IF FOUND THEN
                        out_outcome := 'superseded';
                    END IF;
                EXCEPTION
                    -- Somebody holds its row, or today has no partition: it runs again.
                    WHEN lock_not_available OR deadlock_detected OR check_violation THEN
                        NULL;
                END;
            END IF;
            EXIT;
        END LOOP;
        RETURN NEXT;
    END LOOP;
END $$;
