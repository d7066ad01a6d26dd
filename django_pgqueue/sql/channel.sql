-- The channel of NOTIFY: one per schema, so that two installations in one database do
-- not wake each other. A channel has at most 63 bytes; a longer schema name is hashed.
--
-- Called by postgres/wake.py, pgqueue_enqueue() and pgqueue_publish().
--
-- No query of the catalog's tables: the first one of a session reads what the planner
-- wants to know about them, three quarters of a millisecond for each request where a
-- connection lives no longer. This finds the names in the caches that a session has
-- anyway.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_channel() RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    -- Of a table: its schema, then its name, both unquoted.
    names text[] := (pg_catalog.pg_identify_object_as_address(
        'pg_catalog.pg_class'::regclass, 'pgqueue_job'::regclass, 0)).object_names;
BEGIN
    RETURN 'pgqueue_' || CASE WHEN octet_length(names[1]) <= 55 THEN names[1]
                              ELSE md5(names[1]) END;
END $$;
