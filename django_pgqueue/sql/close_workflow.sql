-- Closes a workflow to additions from outside, and ends it if nothing of it runs. The
-- answer is false where it was closed before, or is not there.
--
-- Called by queues/workflows.py, for batches.
--
-- Locks: the row of the workflow and those of the batches that it is in, until the end
-- of the transaction.
CREATE OR REPLACE FUNCTION pgqueue_close_workflow(workflow bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pgqueue_lock_workflows(ARRAY[$1]);
    UPDATE pgqueue_workflow w SET is_open = false WHERE w.id = $1 AND w.is_open;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pgqueue_advance(ARRAY[$1], NULL, NULL, false);
    RETURN true;
END $$;
