-- Whether a message from outside is new; if so, it is noted in the caller's
-- transaction. It stays noted if that commits.
--
-- Called by queues/inbox.py and by whoever is not Python. It runs as the owner of the
-- tables, for roles that may execute it and read nothing.
--
-- Locks: its entry in the unique index. This waits for another transaction that has
-- noted the same message, and for nothing else: false once that one has committed, true
-- if it has rolled back. Above READ COMMITTED what has committed meanwhile is an error
-- (40001), as anywhere.
CREATE OR REPLACE FUNCTION pgqueue_inbox(
    source text, external_id text
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO pgqueue_inbox (source, external_id) VALUES ($1, $2)
        ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_inbox(text, text) FROM PUBLIC;
