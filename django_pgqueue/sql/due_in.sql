-- Says in how many seconds the next message of a pull queue is due that is not due yet;
-- NULL: none is. For receivers that wait: nobody tells of a time that comes. Messages
-- that wait in lanes for others are not looked at.
--
-- Called by queues/pull.py, and by whoever is not Python.
--
-- Locks: none. One probe per priority, along the index of claims.
CREATE OR REPLACE FUNCTION pgqueue_due_in(queue text) RETURNS float8
LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET jit = off
AS $$
DECLARE
    level smallint;
    due_at timestamptz;
BEGIN
    level := (SELECT j.priority FROM pgqueue_job j WHERE j.queue = $1
               ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1);
    WHILE level IS NOT NULL LOOP
        due_at := least(due_at, (
            SELECT j.visible_at FROM pgqueue_job j
             WHERE j.queue = $1 AND j.priority = level
               AND j.visible_at > statement_timestamp()
             ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1));
        level := (SELECT j.priority FROM pgqueue_job j
                   WHERE j.queue = $1 AND j.priority < level
                   ORDER BY j.queue, j.priority DESC, j.visible_at LIMIT 1);
    END LOOP;
    RETURN extract(epoch FROM due_at - statement_timestamp());
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_due_in(text) FROM PUBLIC;
