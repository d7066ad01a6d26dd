-- Stores the jobs of steps: all of them, or an error. It reads nothing of the jobs that
-- are there: who may start workflows need not be allowed to.
--
-- Called by start_steps.sql. A step's "job" holds what Placement does, with times from
-- its start on. "fills" says which of its arguments, by place or name, are the results of
-- which steps; null where a step has none.
--
-- Locks: as start_steps.sql.
CREATE OR REPLACE FUNCTION pgqueue_store_steps(
    ready bigint[], notifies boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    too_large text;
    hint text;
BEGIN
    WITH given AS MATERIALIZED (
        SELECT s.id, s.workflow_id, s.name, s.task, s.job, s.takes, s.fills,
               CASE s.takes
               WHEN 'result' THEN
                   (SELECT coalesce(p.result, 'null') FROM pgqueue_step p
                     WHERE p.id = s.after[1])
               WHEN 'results' THEN pgqueue_results_of(s.after)
               WHEN 'failure' THEN pgqueue_failure_of(s.workflow_id)
               END AS value
          FROM pgqueue_step s WHERE s.id = ANY(ready)),
    made AS MATERIALIZED (
        SELECT g.id, g.workflow_id, g.name, g.task, j.queue,
               CASE WHEN g.value IS NOT NULL THEN jsonb_set(j.args, '{0}', g.value)
                    WHEN g.fills IS NOT NULL THEN (
                        SELECT coalesce(jsonb_agg(
                                   CASE WHEN f.step IS NULL THEN a.value
                                        ELSE coalesce((
                                            SELECT p.result FROM pgqueue_step p
                                             WHERE p.id = f.step), 'null') END
                                   ORDER BY a.place), '[]')
                          FROM jsonb_array_elements(j.args) WITH ORDINALITY
                               AS a(value, place)
                          LEFT JOIN jsonb_to_recordset(g.fills)
                               AS f("to" jsonb, step bigint)
                               ON f."to" = to_jsonb(a.place - 1))
                    ELSE j.args END AS args,
               CASE WHEN g.fills IS NULL THEN j.kwargs
                    ELSE j.kwargs || (
                        SELECT coalesce(jsonb_object_agg(
                                   f."to" #>> '{}', coalesce((
                                       SELECT p.result FROM pgqueue_step p
                                        WHERE p.id = f.step), 'null')), '{}')
                          FROM jsonb_to_recordset(g.fills) AS f("to" jsonb, step bigint)
                         WHERE jsonb_typeof(f."to") = 'string') END AS kwargs,
               j.headers, j.priority, j.max_attempts,
               coalesce(j.run_at, clock_timestamp() + j.delay) AS run_after,
               coalesce(j.expire_at, clock_timestamp() + j.expire_in) AS expires_at,
               j.lane, j.lane_capacity, j.lane_spacing, j.lane_burst, j.lane_policy,
               j.bytes_max,
               g.takes IS DISTINCT FROM 'results' OR g.value IS NOT NULL AS is_given
          FROM given g, jsonb_to_record(g.job) AS j(
               queue text, args jsonb, kwargs jsonb, headers jsonb, priority smallint,
               max_attempts smallint, run_at timestamptz, delay interval,
               expire_at timestamptz, expire_in interval, lane text,
               lane_capacity integer, lane_spacing float8, lane_burst integer,
               lane_policy text, bytes_max bigint)),
    stored AS (
        INSERT INTO pgqueue_job (
            id, workflow_id, task, queue, args, kwargs, headers, priority, max_attempts,
            run_after, expires_at, lane, lane_capacity, lane_spacing, lane_burst,
            lane_policy, promotion)
        SELECT id, workflow_id, task, queue, args, kwargs, headers, priority,
               max_attempts, run_after, expires_at, lane, lane_capacity, lane_spacing,
               lane_burst, lane_policy, CASE WHEN lane IS NOT NULL THEN 0 END
          FROM made ORDER BY id),
    started AS (
        UPDATE pgqueue_step s
           SET state = 'started', started_at = statement_timestamp(),
               finished_at = NULL, error = NULL
         WHERE s.id = ANY(ready) RETURNING s.workflow_id, s.kind),
    counted AS (
        UPDATE pgqueue_workflow w SET active = w.active + c.steps
          FROM (SELECT workflow_id, count(*) AS steps FROM started
                 WHERE kind = 'step' GROUP BY workflow_id) c
         WHERE w.id = c.workflow_id
           AND w.id = ANY(ARRAY(SELECT workflow_id FROM started)))
    SELECT CASE WHEN bytes IS NULL
                THEN format('step %s takes results of more than 50,000,000 bytes', name)
                ELSE format('step %s has arguments of %s bytes; the limit is %s', name,
                            bytes, bytes_max) END
      INTO too_large
      FROM (SELECT name, bytes_max, CASE WHEN is_given THEN
                   octet_length(args::text) + octet_length(kwargs::text) END AS bytes
              FROM made) m
     WHERE bytes > bytes_max OR bytes IS NULL LIMIT 1;
    IF too_large IS NOT NULL THEN
        RAISE '% (PAYLOAD_BYTES_MAX)', too_large
            USING ERRCODE = 'program_limit_exceeded';
    END IF;

    IF NOT notifies THEN
        RETURN;
    END IF;
    FOR hint IN
        SELECT DISTINCT CASE WHEN s.job ->> 'lane' IS NULL THEN s.job ->> 'queue'
                             WHEN s.job ->> 'lane_policy' = 'fair'
                             THEN '!fair:' || (s.job ->> 'queue')
                             ELSE '!lanes' END
          FROM pgqueue_step s WHERE s.id = ANY(ready)
    LOOP
        PERFORM pg_notify(pgqueue_channel(), hint);
    END LOOP;
END $$;
