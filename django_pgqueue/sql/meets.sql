-- Whether all comparisons of a step's condition hold: each of the result of a step, or
-- of what stands at a path in it, with a value. What is not there is null.
--
-- Called by advance.sql. Values compare as JSON does: numbers by size, texts by letters;
-- of different types none is less than the other.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_meets(condition jsonb) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce(bool_and(
        CASE c.op
        WHEN '==' THEN found.value = c.value
        WHEN '!=' THEN found.value <> c.value
        WHEN 'in' THEN c.value @> jsonb_build_array(found.value)
        ELSE jsonb_typeof(found.value) = jsonb_typeof(c.value)
             AND CASE c.op
                 WHEN '<' THEN found.value < c.value
                 WHEN '<=' THEN found.value <= c.value
                 WHEN '>' THEN found.value > c.value
                 WHEN '>=' THEN found.value >= c.value END
        END), true)
      FROM jsonb_to_recordset(condition)
           AS c(step bigint, path text[], op text, value jsonb)
     CROSS JOIN LATERAL (
           SELECT coalesce((
                      SELECT s.result #> coalesce(c.path, '{}')
                        FROM pgqueue_step s WHERE s.id = c.step), 'null')) found(value)
$$;
