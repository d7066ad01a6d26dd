-- Returns the results of some steps as one list, in the order of their ids given; null
-- where a step returned nothing.
--
-- Called by store_steps.sql and advance.sql.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_results_of(steps bigint[]) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(coalesce(s.result, 'null') ORDER BY asked.place), '[]')
      FROM unnest(steps) WITH ORDINALITY AS asked(id, place)
      JOIN pgqueue_step s ON s.id = asked.id AND s.id = ANY(steps)
$$;
