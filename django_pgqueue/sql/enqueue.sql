-- The enqueue of other languages. Where a live job has the key, its id is returned.
--
-- Called by whoever is not Python. It notifies inside the caller's transaction, which
-- serialises commits that notify; a plain INSERT does not, and is found by the poll.
--
-- Locks: those of pgqueue_store_unique().
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
    headers jsonb DEFAULT '{}'
) RETURNS bigint LANGUAGE sql AS $$
    WITH job AS (
        SELECT stored.out_id AS id
          FROM pgqueue_store_unique(
               $4, $1, $2, $3, $10, $5, $8, $6, $7, clock_timestamp(), $9,
               CASE WHEN $9 IS NULL THEN NULL ELSE 'queued|running' END, 'skip',
               NULL, NULL, NULL, true) AS stored)
    SELECT job.id FROM job, pg_notify(pgqueue_channel(), $4)
$$;
