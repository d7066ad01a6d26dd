-- Leaves large values out of the message of a row that is too large, and names them.
--
-- Called by pgqueue_capture(), so that nobody's write fails since a message of it would
-- be too large.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_capture_less(payload jsonb, bytes_max bigint)
RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    large text[] := ARRAY(
        SELECT DISTINCT value.key
          FROM jsonb_each(jsonb_build_object(
                   'old', payload -> 'old', 'new', payload -> 'new')) side,
               LATERAL jsonb_each(CASE WHEN jsonb_typeof(side.value) = 'object'
                                       THEN side.value ELSE '{}' END) value
         WHERE octet_length(value.value::text) > bytes_max
         ORDER BY value.key);
BEGIN
    RETURN payload || jsonb_build_object(
        'old', CASE WHEN jsonb_typeof(payload -> 'old') = 'object'
                    THEN (payload -> 'old') - large END,
        'new', CASE WHEN jsonb_typeof(payload -> 'new') = 'object'
                    THEN (payload -> 'new') - large END,
        'left_out', large);
END $$;
