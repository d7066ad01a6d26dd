-- Sends messages to a pull queue, in the caller's transaction: an array of payloads, and
-- where they have lanes an array of as many texts or nulls. Returns their ids, in order.
--
-- Called by queues/pull.py, and by whoever is not Python. What else is said is as in
-- send.sql, and holds for all of them.
--
-- Locks: those of an INSERT.
CREATE OR REPLACE FUNCTION pgqueue_send_many(
    queue text,
    payloads jsonb,
    delay_seconds float8 DEFAULT NULL,
    lanes jsonb DEFAULT NULL,
    headers jsonb DEFAULT '{}',
    priority integer DEFAULT 0,
    expires_seconds float8 DEFAULT NULL,
    max_receives integer DEFAULT NULL,
    wakes boolean DEFAULT true
) RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    most integer := (SELECT coalesce($8, q.max_receives) FROM pgqueue_pull_queue($1) q);
    moment timestamptz := clock_timestamp();
    due_at timestamptz := CASE WHEN $3 > 0 THEN moment + make_interval(secs => $3) END;
    over_at timestamptz := moment + make_interval(secs => $7);
BEGIN
    IF num_nonnulls($3, $7, $8) > 0 THEN
        PERFORM pgqueue_check_send($3, $7, $8);
    END IF;
    IF jsonb_typeof($2) IS DISTINCT FROM 'array' OR jsonb_array_length($2) > 10000 THEN
        RAISE 'payloads is no array of up to 10000 messages: %',
            coalesce(left($2::text, 50), 'NULL')
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Write [{"order": 1}, {"order": 2}]; more, in several calls.';
    END IF;
    IF $4 IS NULL THEN
        RETURN QUERY INSERT INTO pgqueue_job (
            task, args, queue, priority, run_after, expires_at, max_attempts, headers)
        SELECT 'pgqueue.pull', jsonb_build_array(item.value), $1, $6, due_at, over_at,
               most, coalesce($5, '{}')
          FROM jsonb_array_elements($2) WITH ORDINALITY AS item(value, place)
         ORDER BY item.place
        RETURNING id;
    ELSE
        IF jsonb_typeof($4) <> 'array'
           OR jsonb_array_length($4) <> jsonb_array_length($2) THEN
            RAISE 'lanes is no array of as many lanes as there are payloads (%): %',
                jsonb_array_length($2), left($4::text, 50)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Write ["c1", null]; null is a message in no lane.';
        END IF;
        RETURN QUERY INSERT INTO pgqueue_job (
            task, args, queue, priority, run_after, expires_at, max_attempts, headers,
            lane)
        SELECT 'pgqueue.pull', jsonb_build_array(item.value), $1, $6, due_at, over_at,
               most, coalesce($5, '{}'), pgqueue_pull_lane($1, item.lane)
          FROM ROWS FROM (jsonb_array_elements($2), jsonb_array_elements_text($4))
               WITH ORDINALITY AS item(value, lane, place)
         ORDER BY item.place
        RETURNING id;
    END IF;
    IF wakes THEN
        PERFORM pg_notify(pgqueue_channel(), '!pull:' || $1);
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_send_many(
    text, jsonb, float8, jsonb, jsonb, integer, float8, integer, boolean) FROM PUBLIC;
