-- Locks workflows, and the batches that they are in, in the order of their ids; returns
-- the ids of all. A batch is stored after the one that it is in, so its id is higher:
-- whoever locks some of a tree has locked its root first.
--
-- Called by whoever changes what a workflow counts, before it does.
--
-- Locks: those rows, until the end of the transaction.
CREATE OR REPLACE FUNCTION pgqueue_lock_workflows(workflows bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    above bigint[] := workflows;
    every bigint[] := workflows;
BEGIN
    LOOP
        above := ARRAY(SELECT DISTINCT w.parent_id FROM pgqueue_workflow w
                        WHERE w.id = ANY(above) AND w.parent_id IS NOT NULL);
        EXIT WHEN cardinality(above) = 0;
        every := every || above;
    END LOOP;
    PERFORM FROM pgqueue_workflow w WHERE w.id = ANY(every)
      ORDER BY w.id FOR NO KEY UPDATE;
    RETURN every;
END $$;
