-- Stores a workflow with its steps, and starts those that wait for nothing.
--
-- Called by queues/workflows.py; what "steps" are stands in insert_steps.sql. A second
-- workflow of a name and key is not stored: the answer is the first one then. An open
-- one does not end before it is closed, so that steps can be added. A "version" says by
-- which declaration it was made. A batch that is in another, its "parent", is refused
-- where that has ended ("ended"), or where there are ten above it ("deep").
--
-- Locks: those of INSERTs. Of a key its entry in the unique index: this waits for
-- whoever stores the same one and has not committed. Before, the rows of the parent and
-- of the batches that it is in.
CREATE OR REPLACE FUNCTION pgqueue_start_workflow(
    name text,
    key text,
    steps jsonb,
    ends integer[],
    is_list boolean,
    kind text,
    is_open boolean,
    deadline interval,
    version text DEFAULT NULL,
    parent bigint DEFAULT NULL,
    OUT workflow bigint,
    OUT first_id bigint,
    OUT is_new boolean,
    OUT refused text
) LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    IF parent IS NOT NULL THEN
        refused := CASE WHEN cardinality(pgqueue_lock_workflows(ARRAY[parent])) > 10
                        THEN 'deep' END;
        PERFORM FROM pgqueue_workflow w
          WHERE w.id = parent AND w.kind = 'batch' AND w.state = 'running'
            AND w.cancel_requested_at IS NULL;
        IF NOT FOUND THEN
            refused := 'ended';
        END IF;
        IF refused IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO pgqueue_workflow AS w (name, key, is_list, kind, is_open, deadline_at,
                                       version, parent_id, steps)
    VALUES ($1, $2, $5, $6, $7, clock_timestamp() + $8, $9, $10,
            (SELECT count(*) FROM jsonb_array_elements($3) s(step)
              WHERE s.step ->> 'kind' = 'step' AND s.step ? 'task'))
    ON CONFLICT ON CONSTRAINT pgqueue_workflow_key DO NOTHING
    RETURNING w.id INTO workflow;
    is_new := workflow IS NOT NULL;
    IF NOT is_new THEN
        SELECT w.id INTO STRICT workflow FROM pgqueue_workflow w
         WHERE w.name = $1 AND w.key = $2 AND w.kind = $6;
        RETURN;
    END IF;
    ids := ARRAY(SELECT nextval('pgqueue_job_id_seq')
                   FROM generate_series(1, jsonb_array_length($3)));
    first_id := ids[1];
    UPDATE pgqueue_workflow w
       SET ends = ARRAY(SELECT ids[e.place + 1]
                          FROM unnest($4) WITH ORDINALITY AS e(place, number)
                         ORDER BY e.number)
     WHERE w.id = workflow;
    PERFORM pgqueue_insert_steps(workflow, ids, $3);
    PERFORM pgqueue_advance(
        ARRAY[workflow], NULL,
        ARRAY(SELECT s.id FROM pgqueue_step s
               WHERE s.workflow_id = workflow AND s.waits = 0 AND s.kind = 'step'),
        false);
END $$;
