-- Stores a workflow with its steps, and starts those that wait for nothing.
--
-- Called by queues/workflows.py. Each element of "steps" has a name, a kind, a task and
-- its job, "after" and "next" as places of the list, from 0 on, what it takes and which
-- arguments are filled with results, when it runs, and which step it compensates.
-- A second workflow of a name and key is not stored: the answer is the first one then.
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
    OUT workflow bigint,
    OUT first_id bigint,
    OUT is_new boolean
) LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    INSERT INTO pgqueue_workflow AS w (name, key, is_list, kind, steps)
    VALUES ($1, $2, $5, $6,
            (SELECT count(*) FROM jsonb_array_elements($3) s(step)
              WHERE s.step ->> 'kind' = 'step' AND s.step ? 'task'))
    ON CONFLICT ON CONSTRAINT pgqueue_workflow_key DO NOTHING
    RETURNING w.id INTO workflow;
    is_new := workflow IS NOT NULL;
    IF NOT is_new THEN
        SELECT w.id INTO STRICT workflow FROM pgqueue_workflow w
         WHERE w.name = $1 AND w.key = $2;
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
    INSERT INTO pgqueue_step (id, workflow_id, name, kind, task, job, after, next, waits,
                              takes, fills, condition, compensates, state)
    SELECT ids[s.place], workflow, j.name, j.kind, j.task, j.job,
           ARRAY(SELECT ids[a.value::int + 1]
                   FROM jsonb_array_elements_text(j.after) WITH ORDINALITY a(value, n)
                  ORDER BY a.n),
           ARRAY(SELECT ids[a.value::int + 1]
                   FROM jsonb_array_elements_text(j.next) WITH ORDINALITY a(value, n)
                  ORDER BY a.n),
           jsonb_array_length(j.after), j.takes,
           (SELECT jsonb_agg(f.value || jsonb_build_object(
                                 'step', ids[(f.value ->> 'step')::int + 1]))
              FROM jsonb_array_elements(j.fills) f(value)),
           (SELECT jsonb_agg(c.value || jsonb_build_object(
                                 'step', ids[(c.value ->> 'step')::int + 1]))
              FROM jsonb_array_elements(j.condition) c(value)),
           ids[j.compensates + 1], 'waiting'
      FROM jsonb_array_elements($3) WITH ORDINALITY AS s(step, place),
           jsonb_to_record(s.step) AS j(
               name text, kind text, task text, job jsonb, after jsonb, next jsonb,
               takes text, fills jsonb, condition jsonb, compensates integer)
     ORDER BY s.place;
    PERFORM pgqueue_advance(
        ARRAY[workflow], NULL,
        ARRAY(SELECT s.id FROM pgqueue_step s
               WHERE s.workflow_id = workflow AND s.waits = 0 AND s.kind = 'step'),
        false);
END $$;
