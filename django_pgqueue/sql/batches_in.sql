-- Returns a workflow and all batches that are in it, at whatever depth.
--
-- Called by failure_of.sql and queues/workflows.py.
--
-- Locks: none. Who has locked the workflow sees all: a batch is stored under that lock.
CREATE OR REPLACE FUNCTION pgqueue_batches_in(workflow bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    below bigint[] := ARRAY[workflow];
    every bigint[] := ARRAY[workflow];
BEGIN
    LOOP
        below := ARRAY(SELECT w.id FROM pgqueue_workflow w
                        WHERE w.parent_id = ANY(below) ORDER BY w.id);
        EXIT WHEN cardinality(below) = 0;
        every := every || below;
    END LOOP;
    RETURN every;
END $$;
