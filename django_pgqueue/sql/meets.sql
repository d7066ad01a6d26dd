-- Whether all comparisons of a step's condition hold: each of the result of a step, or
-- of what stands at a path in it, with a value. What is not there is null.
--
-- Called by advance.sql. Values compare as JSON does: numbers by size, texts by letters;
-- of different types none is less than the other. Null is a value like others, so what
-- is compared is taken out of the JSON as JSON: as a column of a record it would be
-- NULL, and the comparison neither true nor false.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_meets(condition jsonb) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce(bool_and(
        CASE c.op
        WHEN '==' THEN found.value = c.value
        WHEN '!=' THEN found.value <> c.value
        WHEN 'in' THEN EXISTS (SELECT FROM jsonb_array_elements(c.value) AS one(value)
                                WHERE one.value = found.value)
        ELSE jsonb_typeof(found.value) = jsonb_typeof(c.value)
             AND CASE c.op
                 WHEN '<' THEN found.value < c.value
                 WHEN '<=' THEN found.value <= c.value
                 WHEN '>' THEN found.value > c.value
                 WHEN '>=' THEN found.value >= c.value END
        END), true)
      FROM jsonb_array_elements(condition) AS said(comparison)
     CROSS JOIN LATERAL (
           SELECT (comparison ->> 'step')::bigint,
                  ARRAY(SELECT jsonb_array_elements_text(comparison -> 'path')),
                  comparison ->> 'op', comparison -> 'value') AS c(step, path, op, value)
     CROSS JOIN LATERAL (
           SELECT coalesce((SELECT s.result #> c.path FROM pgqueue_step s
                             WHERE s.id = c.step), 'null')) AS found(value)
$$;
