-- Notes how steps have ended, and advances their workflows, in the transaction that
-- ends their jobs.
--
-- Called by the triggers of jobs_gone.sql and letters_gone.sql: whoever takes a job of
-- a workflow out of its table, by whatever statement, so that no step is lost. Where its
-- row has come to says how it ended. It is nowhere: a worker held it, and keeps no
-- archive ("acked"); or somebody deleted it.
--
-- In each join the array stands once more: a worker's plans are made for any parameters,
-- and would walk over all steps and jobs to meet a few.
--
-- Locks: the rows of the workflows and of the batches that they are in, in the order of
-- their ids, until the end of the transaction: settles of one workflow wait for each
-- other, for the time of a statement. Then row locks on its steps.
CREATE OR REPLACE FUNCTION pgqueue_steps_ended(
    ended bigint[], acked bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    workflows bigint[];
    done bigint[];
BEGIN
    workflows := ARRAY(SELECT DISTINCT s.workflow_id FROM pgqueue_step s
                        WHERE s.id = ANY(ended));
    PERFORM pgqueue_lock_workflows(workflows);

    WITH found AS (
        SELECT asked.id, a.result,
               CASE WHEN a.id IS NOT NULL THEN a.state
                    WHEN d.id IS NOT NULL THEN 'dead'
                    WHEN asked.id = ANY(acked) THEN 'succeeded'
                    ELSE 'cancelled' END AS state,
               CASE WHEN d.id IS NOT NULL THEN jsonb_strip_nulls(jsonb_build_object(
                        'reason', d.reason, 'type', d.errors -> -1 -> 'type',
                        'message', left(d.errors -> -1 ->> 'message', 1000))) END
               AS error
          FROM unnest(ended) AS asked(id)
          LEFT JOIN pgqueue_dead_letter d ON d.id = asked.id AND d.id = ANY(ended)
          LEFT JOIN pgqueue_archived_job a
            ON a.id = asked.id AND a.id = ANY(ended)
           AND a.finished_at >= statement_timestamp() - interval '1 min'
           AND a.finished_at <= statement_timestamp()),
    changed AS (
        UPDATE pgqueue_step s
           SET state = found.state, result = found.result, error = found.error,
               finished_at = statement_timestamp()
          FROM found
         WHERE s.id = found.id AND s.id = ANY(ended) AND s.state = 'started'
        RETURNING s.id, s.workflow_id, s.kind, s.state),
    counted AS (
        UPDATE pgqueue_workflow w
           SET active = w.active - c.steps, succeeded = w.succeeded + c.succeeded,
               dead = w.dead + c.dead, cancelled = w.cancelled + c.cancelled
          FROM (SELECT workflow_id, count(*) AS steps,
                       count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
                       count(*) FILTER (WHERE state = 'dead') AS dead,
                       count(*) FILTER (WHERE state IN ('cancelled', 'expired'))
                       AS cancelled
                  FROM changed WHERE kind = 'step' GROUP BY workflow_id) c
         WHERE w.id = c.workflow_id AND w.id = ANY(workflows))
    SELECT array_agg(id) FILTER (WHERE state = 'succeeded' AND kind = 'step')
      INTO done FROM changed;
    PERFORM pgqueue_advance(workflows, done, NULL, true);
END $$;
