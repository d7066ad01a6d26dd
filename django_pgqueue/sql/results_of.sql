-- Returns the results of some steps as one list, in the order of their ids given; null
-- where a step returned nothing. NULL where they have more than 50,000,000 bytes as JSON:
-- PostgreSQL refuses a value of 256 MiB, in which small numbers take five times as many
-- bytes, and would have gathered all of them in its memory by then.
--
-- Called by store_steps.sql and advance.sql.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_results_of(steps bigint[]) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN (
        SELECT coalesce(sum(octet_length(s.result::text)), 0) <= 50000000
          FROM pgqueue_step s WHERE s.id = ANY(steps))
    THEN (
        SELECT coalesce(jsonb_agg(coalesce(s.result, 'null') ORDER BY asked.place), '[]')
          FROM unnest(steps) WITH ORDINALITY AS asked(id, place)
          JOIN pgqueue_step s ON s.id = asked.id AND s.id = ANY(steps)) END
$$;
