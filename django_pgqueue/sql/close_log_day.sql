-- Closes a day of the log that is over: what that means and why the id is read after
-- the end of the day stands in log/days.py, which calls it.
--
-- SECURITY DEFINER, as make_day.sql: for roles that own no table, and not for
-- everybody.
--
-- Locks: the advisory lock of whoever makes days, until the transaction ends; ACCESS
-- EXCLUSIVE on the day. It waits for who uses the day as long as others may wait behind
-- it, and no longer.
CREATE OR REPLACE FUNCTION pgqueue_close_log_day(day date) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '200ms' AS $$
DECLARE
    parent regclass := 'pgqueue_message';
    name text := 'pgqueue_message_' || pg_catalog.to_char(day::timestamp, 'YYYYMMDD');
    schema name;
    highest bigint;
BEGIN
    IF NOT day < (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::date THEN
        RAISE EXCEPTION 'the day % is not over', day
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_catalog.pg_advisory_xact_lock(
        706701, 'pgqueue_job'::regclass::oid::integer);
    IF EXISTS (SELECT FROM pgqueue_log_day d WHERE d.day = $1) THEN
        RETURN NULL;
    END IF;
    SELECT n.nspname INTO schema
      FROM pg_catalog.pg_inherits i
      JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE i.inhparent = parent AND c.relname = name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the log has no day %', day
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    highest := coalesce(pg_sequence_last_value('pgqueue_message_id_seq'), 0);
    -- There is one where the row that it stands for was deleted.
    EXECUTE pg_catalog.format('ALTER TABLE %I.%I DROP CONSTRAINT IF EXISTS %I',
                   schema, name, name || '_closed');
    EXECUTE pg_catalog.format(
        'ALTER TABLE %I.%I ADD CONSTRAINT %I CHECK (id <= %s) NOT VALID',
        schema, name, name || '_closed', highest);
    INSERT INTO pgqueue_log_day VALUES (day, highest);
    RETURN highest;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_close_log_day(date) FROM PUBLIC;
