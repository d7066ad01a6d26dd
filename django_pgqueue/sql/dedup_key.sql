-- The text of a key: that of its task, a blank, and its value as JSON: an object of
-- parameters, or a text that the caller has named. What exceeds the column is hashed,
-- so that a long key is as good as a short one; and so is an array, since people who
-- may not see arguments are shown keys. jsonb's own text is one for all who write the
-- same values: keys in one order, one blank after each colon and comma.
--
-- Called by queues/unique.py.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_dedup_key(task text, by jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    whole text := $1 || ' ' || $2::text;
BEGIN
    IF length(whole) <= 255 AND jsonb_typeof($2) <> 'array' THEN
        RETURN whole;
    END IF;
    RETURN left($1, 190) || ' '
        || encode(sha256(convert_to(whole, 'UTF8')), 'hex');
END $$;
