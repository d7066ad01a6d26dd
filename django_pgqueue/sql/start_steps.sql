-- Enqueues the jobs of steps whose turn it is.
--
-- Called by advance.sql. A step and its job have the same id, drawn when the workflow
-- was stored: older than jobs that are stored now, as that of a redriven one is, which
-- "promotion" says to its lane. What "takes" says comes first among the arguments, in
-- the place that was left for it: "result", of the one step before; "results", a list,
-- of all of them in order; "failure", what made the workflow fail.
--
-- A step whose job cannot be stored (its arguments are too large, say) is dead by
-- itself: what stands here must not fail the settle of the job that ended.
--
-- It notifies in the transaction of a settle, which nobody waits for, and not in that of
-- whoever starts a workflow: Python does so after the commit.
--
-- Locks: those of an INSERT, and row locks on the steps. The caller has locked their
-- workflows.
CREATE OR REPLACE FUNCTION pgqueue_start_steps(
    ready bigint[], notifies boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one bigint;
    problem text;
BEGIN
    BEGIN
        PERFORM pgqueue_store_steps(ready, notifies);
        RETURN;
    EXCEPTION
        WHEN data_exception OR integrity_constraint_violation
            OR program_limit_exceeded THEN
        NULL; -- One by one.
    END;
    FOREACH one IN ARRAY ready LOOP
        BEGIN
            PERFORM pgqueue_store_steps(ARRAY[one], notifies);
        EXCEPTION
            WHEN data_exception OR integrity_constraint_violation
                OR program_limit_exceeded THEN
            GET STACKED DIAGNOSTICS problem = MESSAGE_TEXT;
            UPDATE pgqueue_step s
               SET state = 'dead', finished_at = statement_timestamp(),
                   error = jsonb_build_object(
                       'reason', 'unstorable',
                       'message', 'Its job could not be stored: ' || problem)
             WHERE s.id = one;
            UPDATE pgqueue_workflow w SET dead = w.dead + 1
              FROM pgqueue_step s
             WHERE s.id = one AND w.id = s.workflow_id AND s.kind = 'step';
        END;
    END LOOP;
END $$;
