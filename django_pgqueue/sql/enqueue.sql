-- The enqueue of other languages. Where a live job has the key, its id is returned.
--
-- Called by whoever is not Python. It notifies inside the caller's transaction, which
-- serialises commits that notify; a plain INSERT does not, and is found by the poll.
--
-- A job with a lane waits for others of it, as job_place.sql and promote.sql say. It
-- has no key: a call that stands for another one would have to know what waits before.
--
-- Locks: those of pgqueue_store_unique(); of a job with a lane, none.
CREATE OR REPLACE FUNCTION pgqueue_enqueue(
    task text,
    args jsonb DEFAULT '[]',
    kwargs jsonb DEFAULT '{}',
    queue text DEFAULT 'default',
    priority integer DEFAULT 0,
    run_after timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT 5,
    dedup_key text DEFAULT NULL,
    headers jsonb DEFAULT '{}',
    lane text DEFAULT NULL,
    lane_capacity integer DEFAULT NULL,
    lane_spacing float8 DEFAULT NULL,
    lane_burst integer DEFAULT NULL,
    lane_policy text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    stored bigint;
BEGIN
    IF nullif($11, '') IS NULL THEN
        SELECT out_id INTO STRICT stored
          FROM pgqueue_store_unique(
               $4, $1, $2, $3, $10, $5, $8, $6, $7, clock_timestamp(), $9,
               CASE WHEN $9 IS NULL THEN NULL ELSE 'queued|running' END, 'skip',
               NULL, NULL, NULL, true);
        PERFORM pg_notify(pgqueue_channel(), $4);
        RETURN stored;
    END IF;
    IF $9 IS NOT NULL THEN
        RAISE 'pgqueue_enqueue() got the dedup_key % and the lane %: a job has one of '
            'them', $9, $11
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Leave the other one out.';
    END IF;
    INSERT INTO pgqueue_job (
        task, args, kwargs, queue, priority, run_after, expires_at, max_attempts,
        headers, lane, lane_capacity, lane_spacing, lane_burst, lane_policy)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $10, $11, $12, $13, $14, $15)
    RETURNING id INTO stored;
    PERFORM pg_notify(pgqueue_channel(), CASE WHEN $15 = 'fair' THEN '!fair:' || $4
                                              ELSE '!lanes' END);
    RETURN stored;
END $$;
