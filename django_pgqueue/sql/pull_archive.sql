-- Moves messages to the archive; returns the ids of those that moved. Where no
-- worker leads, which makes the archive's days, whoever comes first makes today's.
--
-- Called by pgqueue_ack(), for messages that are somebody's (in_held), and by
-- pgqueue_receive(), for those that have expired or were cancelled.
--
-- What has ended is counted: a row of pgqueue_pull_end for each call, which the leader
-- adds to the spans of tasks. Nobody else touches that row, so no client waits for one.
--
-- Locks: row locks on the deleted rows, until the caller's transaction ends; it waits
-- for whoever has one. The DELETE feeds the INSERT: a message is in exactly one table in
-- every snapshot.
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
