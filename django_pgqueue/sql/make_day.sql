-- Makes the partition of a day (UTC), if there is none; for roles that own no table,
-- too.
--
-- The archive and the log each have a function of their own, since roles are granted
-- them apart: DayTable of postgres/day_tables.py calls them, pgqueue_begin_publish() and
-- pgqueue_pull_archive(). The one that they share is granted
-- to nobody; they call it with its very types, so that no other of its name is taken.
--
-- SECURITY DEFINER: they run as their owner, who is that of the tables. So they are pinned
-- (pins.sql), with what the caller can write to last; what is called is named with its
-- schema, since somebody may write to that of the installation; a table of that name
-- which is somebody else's is not attached. Who does not have the owner's rights anyway
-- gets days of the coming weeks alone. Not for everybody: whoever it is granted to.
--
-- What somebody else has made since this transaction's snapshot is seen by a function
-- alone, in REPEATABLE READ: hence pg_partition_root().
--
-- Locks: an advisory lock until the transaction ends (postgres/keys.py), which lets one
-- at a time make days of this installation. The partition is made apart and attached:
-- ATTACH takes SHARE UPDATE EXCLUSIVE on the parent, beside which rows are written.
CREATE OR REPLACE FUNCTION pgqueue_make_day(parent regclass, day date) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    name text;
    today date := (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::date;
    caller name := CASE pg_catalog.current_setting('role')
                        WHEN 'none' THEN session_user
                        ELSE pg_catalog.current_setting('role') END;
    schema name;
    owner oid;
    owner_there oid;
BEGIN
    IF (day < today - 1 OR day > today + 35)
       AND NOT pg_catalog.pg_has_role(caller, current_user, 'USAGE') THEN
        RAISE EXCEPTION 'the day % cannot be made by %: from yesterday on, days can be '
            'made 35 ahead', day, caller
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_catalog.pg_advisory_xact_lock(
        706701, 'pgqueue_job'::regclass::oid::integer);
    SELECT n.nspname, c.relowner,
           c.relname || '_' || pg_catalog.to_char(day::timestamp, 'YYYYMMDD')
      INTO schema, owner, name
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
        ON n.oid = c.relnamespace
     WHERE c.oid = parent;
    IF pg_catalog.pg_partition_root(pg_catalog.to_regclass(
           pg_catalog.format('%I.%I', schema, name))) = parent THEN
        RETURN false;
    END IF;
    SELECT c.relowner INTO owner_there
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
        ON n.oid = c.relnamespace
     WHERE n.nspname = schema AND c.relname = name;
    IF owner_there <> owner THEN
        RAISE EXCEPTION 'the table %.% belongs to another role than %: drop or rename '
            'it', schema, name, parent USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE pg_catalog.format('CREATE TABLE IF NOT EXISTS %I.%I (LIKE %s'
                   ' INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', schema, name, parent);
    EXECUTE pg_catalog.format('ALTER TABLE %s ATTACH PARTITION %I.%I'
                   ' FOR VALUES FROM (%L) TO (%L)', parent, schema, name,
                   day || ' 00:00+00', day + 1 || ' 00:00+00');
    RETURN true;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_make_day(regclass, date) FROM PUBLIC;

CREATE OR REPLACE FUNCTION pgqueue_make_archive_day(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    RETURN pgqueue_make_day('pgqueue_archived_job'::regclass, day);
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_make_archive_day(date) FROM PUBLIC;

CREATE OR REPLACE FUNCTION pgqueue_make_log_day(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    RETURN pgqueue_make_day('pgqueue_message'::regclass, day);
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_make_log_day(date) FROM PUBLIC;
