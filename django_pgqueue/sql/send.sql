-- Sends a message to a pull queue, in the caller's transaction; returns its id. Where a
-- message of the queue has the dedup_key and has not ended, that one's id.
--
-- Called by queues/pull.py, and by whoever is not Python.
--
-- A message is a job of the reserved task "pgqueue.pull", which no worker claims; its
-- payload is the one argument. With a lane it is received when the one before it in the
-- lane has ended. It has a lane or a dedup_key, as with pgqueue_enqueue().
--
-- wakes: a NOTIFY goes out with the caller's commit, and commits that notify stand in
-- line. Who leaves it out tells receivers otherwise, or lets them find it by the poll.
--
-- Locks: those of an INSERT; with a dedup_key, of pgqueue_store_unique().
CREATE OR REPLACE FUNCTION pgqueue_send(
    queue text,
    payload jsonb,
    delay_seconds float8 DEFAULT NULL,
    lane text DEFAULT NULL,
    dedup_key text DEFAULT NULL,
    headers jsonb DEFAULT '{}',
    priority integer DEFAULT 0,
    expires_seconds float8 DEFAULT NULL,
    max_receives integer DEFAULT NULL,
    wakes boolean DEFAULT true
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    most integer := (SELECT coalesce($9, q.max_receives) FROM pgqueue_pull_queue($1) q);
    moment timestamptz := clock_timestamp();
    due_at timestamptz := CASE WHEN $3 > 0 THEN moment + make_interval(secs => $3) END;
    over_at timestamptz := moment + make_interval(secs => $8);
    stored bigint;
BEGIN
    IF num_nonnulls($3, $8, $9) > 0 THEN
        PERFORM pgqueue_check_send($3, $8, $9);
    END IF;
    IF $5 IS NULL THEN
        INSERT INTO pgqueue_job (task, args, queue, priority, run_after, expires_at,
                                 max_attempts, headers, lane)
        VALUES ('pgqueue.pull', jsonb_build_array($2), $1, $7, due_at, over_at, most,
                coalesce($6, '{}'),
                CASE WHEN $4 IS NOT NULL THEN pgqueue_pull_lane($1, $4) END)
        RETURNING id INTO STRICT stored;
    ELSIF $4 IS NOT NULL THEN
        RAISE 'pgqueue_send() got the dedup_key % and the lane %: a message has one of '
            'them', $5, $4
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave the other one out.';
    ELSE
        SELECT out_id INTO STRICT stored FROM pgqueue_store_unique(
            $1, 'pgqueue.pull', jsonb_build_array($2), '{}', coalesce($6, '{}'), $7,
            most, due_at, over_at, moment,
            pgqueue_dedup_key('pgqueue.pull:' || $1, to_jsonb($5)), 'queued|running',
            'skip', NULL, NULL, NULL, true);
    END IF;
    IF wakes THEN
        PERFORM pg_notify(pgqueue_channel(), '!pull:' || $1);
    END IF;
    RETURN stored;
END $$;
REVOKE EXECUTE ON FUNCTION pgqueue_send(
    text, jsonb, float8, text, text, jsonb, integer, float8, integer, boolean)
    FROM PUBLIC;
