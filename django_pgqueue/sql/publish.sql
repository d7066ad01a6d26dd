-- The publish of other languages. It notifies inside the caller's transaction, as
-- pgqueue_enqueue() does; where that must not be, call pgqueue_store_messages().
--
-- With run_after it is published then, by a job, and the id is below zero.
--
-- Called by whoever is not Python.
--
-- Locks: those of pgqueue_begin_publish(); with run_after, none.
CREATE OR REPLACE FUNCTION pgqueue_publish(
    name text,
    payload jsonb,
    key text DEFAULT NULL,
    headers jsonb DEFAULT '{}',
    run_after timestamptz DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    stored jsonb;
    ids bigint[];
BEGIN
    IF name !~ '^[A-Za-z0-9_-]{1,63}([.][A-Za-z0-9_-]+)*$' OR length(name) > 255 THEN
        RAISE EXCEPTION 'a message cannot be called %: write words of letters, '
            'digits, _ and - with dots between, such as orders.created', name
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    headers := coalesce(headers, '{}');
    IF jsonb_typeof(headers) <> 'object' OR length(key) > 1000 THEN
        RAISE EXCEPTION 'the message % cannot be published: its headers must be an '
            'object, and its key have 1,000 characters at most', name
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF run_after IS NOT NULL THEN
        ids := pgqueue_schedule_messages(
            jsonb_build_array(jsonb_build_array(
                name, key, coalesce(payload, 'null'), headers, run_after)),
            clock_timestamp());
        PERFORM pg_notify(pgqueue_channel(), '!lanes');
        RETURN ids[1];
    END IF;
    stored := pgqueue_store_message(name, key, coalesce(payload, 'null'), headers);
    IF stored -> 0 = 'null' THEN
        RAISE EXCEPTION 'the subscription to % in queue % is full: % of at most % jobs',
            stored #>> '{3,1}', stored #>> '{3,2}', stored #>> '{3,4}',
            stored #>> '{3,5}' USING ERRCODE = 'configuration_limit_exceeded';
    END IF;
    PERFORM pg_notify(pgqueue_channel(), queue)
       FROM jsonb_array_elements_text(stored -> 3) queue;
    IF (stored -> 1)::boolean THEN
        PERFORM pg_notify(pgqueue_channel(), '!topic ' || split_part(name, '.', 1));
    END IF;
    RETURN stored -> 0;
END $$;
