-- Tells workflows of dead letters that leave their table: what is redriven reopens its
-- workflow, what is set aside is cancelled, what is deleted stays dead.
--
-- A workflow that was cancelled is not reopened: the job runs, and nothing comes after.
-- One whose deadline has passed has none any more: who redrives it wants it to run.
-- A compensation that is set aside was done by hand, and the next one starts. Dead
-- letters of a saga's other steps only leave where it compensates: they stay dead.
--
-- Locks: none, where no dead letter is of a workflow; else the rows of the workflows
-- and of the batches that they are in, in the order of their ids, and row locks on steps.
CREATE OR REPLACE FUNCTION pgqueue_letters_gone() RETURNS trigger LANGUAGE plpgsql
AS $$
DECLARE
    ended bigint[];
    workflows bigint[];
BEGIN
    SELECT array_agg(gone.id) INTO ended FROM gone WHERE gone.workflow_id IS NOT NULL;
    IF ended IS NULL THEN
        RETURN NULL;
    END IF;
    workflows := ARRAY(SELECT DISTINCT s.workflow_id FROM pgqueue_step s
                        WHERE s.id = ANY(ended) AND s.state = 'dead');
    PERFORM pgqueue_lock_workflows(workflows);
    WITH moved AS (
        UPDATE pgqueue_step s
           SET state = CASE WHEN j.id IS NULL THEN 'cancelled' ELSE 'started' END,
               finished_at = CASE WHEN j.id IS NULL THEN s.finished_at END,
               error = CASE WHEN j.id IS NULL THEN s.error END
          FROM unnest(ended) AS asked(id)
          LEFT JOIN pgqueue_job j ON j.id = asked.id AND j.id = ANY(ended)
         WHERE s.id = asked.id AND s.id = ANY(ended) AND s.state = 'dead'
           AND NOT (s.kind = 'step' AND s.workflow_id = ANY(ARRAY(
                   SELECT w.id FROM pgqueue_workflow w
                    WHERE w.id = ANY(workflows) AND w.kind = 'saga')))
           AND (j.id IS NOT NULL OR EXISTS (
                SELECT FROM pgqueue_archived_job a
                 WHERE a.id = asked.id AND a.id = ANY(ended)
                   AND a.finished_at >= statement_timestamp() - interval '1 min'
                   AND a.finished_at <= statement_timestamp()))
        RETURNING s.workflow_id, s.kind, s.state)
    UPDATE pgqueue_workflow w
       SET dead = w.dead - c.moved, active = w.active + c.started,
           cancelled = w.cancelled + c.moved - c.started,
           finished_at = CASE WHEN w.state = 'failed' AND c.started > 0 THEN NULL
                              ELSE w.finished_at END,
           deadline_at = CASE WHEN w.state = 'failed' AND c.started > 0
                                   AND w.deadline_at <= statement_timestamp()
                              THEN NULL ELSE w.deadline_at END,
           state = CASE WHEN w.state <> 'failed' THEN w.state
                        WHEN c.started > 0 THEN 'running'
                        WHEN w.dead = c.moved THEN 'cancelled' ELSE w.state END
      FROM (SELECT workflow_id, count(*) AS moved,
                   count(*) FILTER (WHERE state = 'started') AS started
              FROM moved WHERE kind = 'step' GROUP BY workflow_id) c
     WHERE w.id = c.workflow_id AND w.id = ANY(workflows);
    IF EXISTS (SELECT FROM pgqueue_step s
                WHERE s.id = ANY(ended) AND s.kind = 'compensation'
                  AND s.state = 'cancelled') THEN
        PERFORM pgqueue_compensate(workflows, true);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER pgqueue_letters_gone AFTER DELETE ON pgqueue_dead_letter
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_letters_gone();
