-- Begins to publish in this transaction: finds or makes the topic, and the day, and
-- takes the lock that holds the topic's readers back.
--
-- Called by pgqueue_store_messages() and pgqueue_store_message().
--
-- A day before one that is closed is not made: readers have passed it, as
-- log/days.py says, and the constraint of a closed day is only where there is such a
-- day.
--
-- Locks: a shared advisory lock (postgres/keys.py), once for each transaction and
-- topic, until the transaction ends; readers look at it (horizons.sql), nobody waits
-- for it. Its key says above which id everything is that this transaction may draw, so
-- it must be taken before the first id is; horizons.sql says how the sequence is read.
-- The setting remembers the lock, and ends with it, at commit, rollback, and rollback to
-- a savepoint. Both have the name of this installation: a transaction that publishes in
-- two takes a lock in each. Assignments, not PERFORM: what is not a statement costs a
-- third of one. A topic that nobody has declared gets its row: others of that topic wait
-- until this transaction ends.
CREATE OR REPLACE FUNCTION pgqueue_begin_publish(
    topic text, OUT topic_id integer
) LANGUAGE plpgsql AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    drawn bigint;
    setting text;
    is_held boolean;
BEGIN
    IF to_regclass('pgqueue_message_' || to_char(today, 'YYYYMMDD')) IS NULL THEN
        IF today < (SELECT max(d.day) FROM pgqueue_log_day d) THEN
            RAISE EXCEPTION 'by the clock of the server it is %, and a later day of '
                'the log is closed: nobody would read a message of today; set the '
                'clock right', today
                USING ERRCODE = 'check_violation';
        END IF;
        PERFORM pgqueue_make_log_day(today);
    END IF;
    SELECT t.id INTO topic_id FROM pgqueue_topic t WHERE t.name = topic;
    IF NOT FOUND THEN
        INSERT INTO pgqueue_topic AS t (name) VALUES (topic)
            ON CONFLICT DO NOTHING
            RETURNING t.id INTO topic_id;
        IF NOT FOUND THEN
            SELECT t.id INTO topic_id FROM pgqueue_topic t WHERE t.name = topic;
        END IF;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the topic % was made by a transaction that this one '
                'does not see: run it again', topic
                USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    drawn := coalesce(pg_sequence_last_value('pgqueue_message_id_seq'), 0);
    setting := 'pgqueue.publishes_' || 'pgqueue_message'::regclass::oid
        || '_' || topic_id;
    IF coalesce(current_setting(setting, true), '') = '' THEN
        -- The low 32 bits, with a sign.
        is_held := pg_advisory_xact_lock_shared(706800000 + topic_id,
            (((drawn + 2147483648) & 4294967295) - 2147483648)::integer
        ) IS NOT NULL;
        is_held := set_config(setting, '1', true) IS NOT NULL;
    END IF;
END $$;
