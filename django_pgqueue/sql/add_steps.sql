-- Adds steps to a workflow that is running, and starts those that wait for nothing.
--
-- Called by queues/workflows.py, for batches: by whoever has opened one, or by a job of
-- it, which keeps it from ending meanwhile. The answer is NULL where it has ended, was
-- cancelled, or is not there.
--
-- Locks: the row of the workflow and those of the batches that it is in, until the end
-- of the transaction; those of INSERTs.
CREATE OR REPLACE FUNCTION pgqueue_add_steps(workflow bigint, steps jsonb)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    PERFORM pgqueue_lock_workflows(ARRAY[$1]);
    PERFORM FROM pgqueue_workflow w
      WHERE w.id = $1 AND w.state = 'running' AND w.cancel_requested_at IS NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    ids := ARRAY(SELECT nextval('pgqueue_job_id_seq')
                   FROM generate_series(1, jsonb_array_length($2)));
    UPDATE pgqueue_workflow w
       SET steps = w.steps + (SELECT count(*) FROM jsonb_array_elements($2) s(step)
                               WHERE s.step ? 'task')
     WHERE w.id = $1;
    PERFORM pgqueue_insert_steps($1, ids, $2);
    PERFORM pgqueue_advance(
        ARRAY[$1], NULL,
        ARRAY(SELECT s.id FROM pgqueue_step s WHERE s.id = ANY(ids) AND s.waits = 0),
        false);
    RETURN ids[1];
END $$;
