-- Moves the position of a consumer group up to an id: everything up to there is done.
-- In the caller's transaction: what else it writes has then happened exactly once.
--
-- Called by topics/receive.py, and by whoever is not Python.
--
-- Returns false, and changes nothing, if the partition is not the caller's any more:
-- the lease is over, somebody sought, or the receipt is none. Roll back then.
-- The last id of the batch gives the partition back; a lower one keeps it, with the
-- same receipt, until the lease ends. An id beyond the batch is refused, since messages
-- would be passed over that nobody has read.
--
-- SECURITY DEFINER, as read.sql.
--
-- Locks: a row lock on the position, until the caller's transaction ends. Claims pass
-- over it; a seek waits for it.
CREATE OR REPLACE FUNCTION pgqueue_commit_position(receipt text, id bigint)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    parts constant text[] := pg_catalog.regexp_match(
        receipt, '^(\d{1,18}) (\d{1,18}) (\d{1,18}) (\S+)$');
    up_to constant bigint := id;
BEGIN
    IF parts IS NULL OR up_to IS NULL THEN
        RAISE EXCEPTION 'a position is committed by what pgqueue_read() gave as the '
            'receipt, and by an id; these are % and %', receipt, up_to
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF up_to > parts[3]::bigint THEN
        RAISE EXCEPTION 'the id % lies beyond the batch of this receipt, which ends '
            'with %', up_to, parts[3]
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE pgqueue_position AS p
       SET position = greatest(p.position, up_to),
           moved_at = pg_catalog.statement_timestamp(),
           failures = 0, retry_at = NULL, errors = NULL,
           single_to = CASE WHEN p.single_to > up_to THEN p.single_to END,
           leased_by = CASE WHEN up_to < parts[3]::bigint THEN p.leased_by END,
           leased_until = CASE WHEN up_to < parts[3]::bigint THEN p.leased_until END
     WHERE p.id = parts[1]::bigint AND p.fence = parts[2]::bigint
       AND p.leased_by = parts[4]
       AND p.leased_until > pg_catalog.statement_timestamp();
    RETURN FOUND;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_commit_position(text, bigint) FROM PUBLIC;
