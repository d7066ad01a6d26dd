-- Stores a workflow with its steps, and starts those that wait for nothing.
--
-- Called by queues/workflows.py; what "steps" are stands in insert_steps.sql. A second
-- workflow of a name and key is not stored: the answer is the first one then. An open
-- one does not end before it is closed, so that steps can be added.
--
-- Locks: those of INSERTs. Of a key its entry in the unique index: this waits for
-- whoever stores the same one and has not committed.
CREATE OR REPLACE FUNCTION pgqueue_start_workflow(
    name text,
    key text,
    steps jsonb,
    ends integer[],
    is_list boolean,
    kind text,
    is_open boolean,
    deadline interval,
    OUT workflow bigint,
    OUT first_id bigint,
    OUT is_new boolean
) LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    INSERT INTO pgqueue_workflow AS w (name, key, is_list, kind, is_open, deadline_at,
                                       steps)
    VALUES ($1, $2, $5, $6, $7, clock_timestamp() + $8,
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
