-- Moves messages to the dead letters, with an error more if there is one; returns the ids
-- of those that moved. As pull_archive.sql.
--
-- Called by pgqueue_reject() and pgqueue_nack(), for messages that are somebody's
-- (in_held), and by pgqueue_receive(), for those that were received often enough.
--
-- Locks: as pull_archive.sql.
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
