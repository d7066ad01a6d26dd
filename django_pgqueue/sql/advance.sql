-- Advances workflows: starts what can start, and ends those that have come to an end.
--
-- Called by start_workflow.sql, add_steps.sql, close_workflow.sql and steps_ended.sql,
-- which have locked the workflows.
--
-- "done" are steps that have succeeded: each that comes after one of them waits for one
-- less. "ready" are those that wait for none. A step without a task gathers the results
-- of those before it, and one whose condition is not met is skipped: both are done at
-- once. So this goes round until nothing more can start. A step that cannot gather, since
-- the results are too large, is dead. A saga of which a step has failed starts no other.
--
-- A workflow has ended when none of its steps is started: what waits then waits for one
-- that has failed. Its callbacks start then, each once; on_error not where somebody has
-- cancelled it, but where its deadline has. An open one does not end, unless it was
-- cancelled. A saga that has not succeeded compensates first.
--
-- Sessions that settle have nested loops turned off (postgres/connect.py), and would read
-- all steps there are to find those of one workflow: so each look says once more which
-- steps or workflows, as an array. Not with nested loops turned on: a chord of 10,000 runs
-- at a fifth of the speed then.
--
-- Locks: row locks on steps, and those of pgqueue_start_steps().
CREATE OR REPLACE FUNCTION pgqueue_advance(
    workflows bigint[], done bigint[], ready bigint[], notifies boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    tasks bigint[];
    gathers bigint[];
    left_out bigint[];
    callbacks bigint[];
BEGIN
    LOOP
        SELECT array_agg(r.id) FILTER (WHERE r.is_met AND r.is_task),
               array_agg(r.id) FILTER (WHERE r.is_met AND NOT r.is_task),
               array_agg(r.id) FILTER (WHERE NOT r.is_met)
          INTO tasks, gathers, left_out
          FROM (SELECT s.id, s.task IS NOT NULL AS is_task,
                       s.condition IS NULL OR pgqueue_meets(s.condition) AS is_met
                  FROM pgqueue_step s JOIN pgqueue_workflow w ON w.id = s.workflow_id
                 WHERE s.id = ANY(ready) AND s.state = 'waiting'
                   AND w.id = ANY(workflows)
                   AND w.state = 'running' AND w.cancel_requested_at IS NULL
                   AND (w.kind <> 'saga' OR w.dead + w.cancelled = 0)) r;
        IF tasks IS NOT NULL THEN
            PERFORM pgqueue_start_steps(tasks, notifies);
        END IF;
        IF gathers IS NOT NULL THEN
            WITH asked AS MATERIALIZED (
                SELECT s.id, CASE WHEN s.takes IS NULL THEN '[]'
                                  ELSE pgqueue_results_of(s.after) END AS results
                  FROM pgqueue_step s WHERE s.id = ANY(gathers)),
            gathered AS (
                UPDATE pgqueue_step s
                   SET state = CASE WHEN asked.results IS NULL THEN 'dead'
                                    ELSE 'succeeded' END,
                       result = asked.results, started_at = statement_timestamp(),
                       finished_at = statement_timestamp(),
                       error = CASE WHEN asked.results IS NULL THEN jsonb_build_object(
                           'reason', 'unstorable', 'message',
                           'The results before it have more than 50,000,000 bytes.')
                           END
                  FROM asked WHERE s.id = asked.id
                RETURNING s.id, s.workflow_id, s.state),
            counted AS (
                UPDATE pgqueue_workflow w SET dead = w.dead + c.steps
                  FROM (SELECT workflow_id, count(*) AS steps FROM gathered
                         WHERE state = 'dead' GROUP BY workflow_id) c
                 WHERE w.id = c.workflow_id)
            SELECT done || array_agg(id) FILTER (WHERE state = 'succeeded')
              INTO done FROM gathered;
        END IF;
        IF left_out IS NOT NULL THEN
            WITH passed_over AS (
                UPDATE pgqueue_step s
                   SET state = 'skipped', finished_at = statement_timestamp()
                 WHERE s.id = ANY(left_out) RETURNING s.workflow_id, s.task)
            UPDATE pgqueue_workflow w SET skipped = w.skipped + c.steps
              FROM (SELECT workflow_id, count(task) AS steps FROM passed_over
                     GROUP BY workflow_id) c
             WHERE w.id = c.workflow_id AND w.id = ANY(workflows);
            done := done || left_out;
        END IF;
        EXIT WHEN done IS NULL;
        WITH met AS (
            SELECT n.id, count(*) AS steps
              FROM pgqueue_step s CROSS JOIN LATERAL unnest(s.next) AS n(id)
             WHERE s.id = ANY(done) GROUP BY n.id),
        nearer AS (
            UPDATE pgqueue_step s SET waits = s.waits - met.steps
              FROM met
             WHERE s.id = met.id AND s.id = ANY(ARRAY(SELECT id FROM met))
            RETURNING s.id, s.waits)
        SELECT array_agg(id) FILTER (WHERE waits = 0) INTO ready FROM nearer;
        done := NULL;
        EXIT WHEN ready IS NULL;
    END LOOP;

    WITH ended AS (
        UPDATE pgqueue_workflow w
           SET state = CASE
                   WHEN w.dead + w.cancelled = 0 AND w.cancel_requested_at IS NULL
                   THEN 'succeeded'
                   WHEN w.kind = 'saga' THEN 'compensating'
                   WHEN w.dead > 0 THEN 'failed' ELSE 'cancelled' END,
               finished_at = CASE
                   WHEN w.kind = 'saga' AND (w.dead + w.cancelled > 0
                                             OR w.cancel_requested_at IS NOT NULL)
                   THEN NULL ELSE statement_timestamp() END
         WHERE w.id = ANY(workflows) AND w.active = 0 AND w.state = 'running'
           AND (NOT w.is_open OR w.cancel_requested_at IS NOT NULL)
        RETURNING w.id, w.state,
                  w.cancel_requested_at IS NOT NULL AND NOT w.is_overdue AS is_asked)
    SELECT array_agg(s.id) INTO callbacks
      FROM ended e JOIN pgqueue_step s ON s.workflow_id = e.id
     WHERE s.workflow_id = ANY(workflows) AND s.state = 'waiting' AND CASE s.kind
           WHEN 'on_success' THEN e.state = 'succeeded'
           WHEN 'on_error' THEN e.state IN ('failed', 'cancelled')
                                AND NOT e.is_asked
           WHEN 'on_complete' THEN e.state <> 'compensating' END;
    IF callbacks IS NOT NULL THEN
        PERFORM pgqueue_start_steps(callbacks, notifies);
    END IF;
    IF EXISTS (SELECT FROM pgqueue_workflow w
                WHERE w.id = ANY(workflows) AND w.state = 'compensating') THEN
        PERFORM pgqueue_compensate(workflows, notifies);
    END IF;
END $$;
