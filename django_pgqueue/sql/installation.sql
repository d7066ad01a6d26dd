-- The first half of every idempotency key: a uuid that is drawn when this is run. A
-- constant in a function rather than a row in a table: it survives TRUNCATE and travels
-- with a dump.
--
-- Called by postgres/server.py and spark/log/offsets.py.
--
-- Not OR REPLACE: whoever runs this again would give an installation another uuid.
--
-- Locks: none.
DO $do$ BEGIN
    EXECUTE format(
        'CREATE FUNCTION pgqueue_installation() RETURNS uuid LANGUAGE sql IMMUTABLE'
        ' AS $$ SELECT %L::uuid $$', gen_random_uuid());
END $do$;
