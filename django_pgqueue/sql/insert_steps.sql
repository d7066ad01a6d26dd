-- Stores steps of a workflow with these ids; none of them is started.
--
-- Called by start_workflow.sql and add_steps.sql. Each element of "steps" has a name, a
-- kind, a task and its job, "after" and "next" as places of the list, from 0 on, what it
-- takes and which arguments are filled with results, when it runs, and which step it
-- compensates.
--
-- Locks: those of an INSERT.
CREATE OR REPLACE FUNCTION pgqueue_insert_steps(
    workflow bigint, ids bigint[], steps jsonb
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pgqueue_step (id, workflow_id, name, kind, task, job, after, next, waits,
                              takes, fills, condition, compensates, state)
    SELECT ids[s.place], $1, j.name, j.kind, j.task, j.job,
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
END $$;
