-- Stores a plain job, with a plan that the session keeps.
--
-- Called by queues/enqueue.py, for delay(). An INSERT by itself is parsed, rewritten
-- and planned for every job, since Django does not prepare statements (a pooler may
-- give each transaction another session); in PL/pgSQL the plan is kept with the
-- session, whosever it is. That is a quarter of what the server spends on a job.
--
-- Locks: those of an INSERT.
CREATE OR REPLACE FUNCTION pgqueue_store(
    queue text,
    task text,
    args jsonb,
    kwargs jsonb,
    headers jsonb,
    priority integer,
    max_attempts integer
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    job_id bigint;
BEGIN
    INSERT INTO pgqueue_job (queue, task, args, kwargs, headers, priority, max_attempts)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    RETURNING id INTO STRICT job_id;
    RETURN job_id;
END $$;
