-- The rules of a job, as one constraint. Not in the model: full_clean() would call the
-- function and log its refusal.
--
-- Locks: ACCESS EXCLUSIVE on pgqueue_job while the table is read, which is empty when
-- it is made. On one with rows: NOT VALID, and VALIDATE in a transaction of its own,
-- beside which nobody waits but vacuum.
ALTER TABLE pgqueue_job ADD CONSTRAINT pgqueue_job_is_sound CHECK (pgqueue_check_job(
    queue, task, args, kwargs, headers, errors, priority, attempt, max_attempts,
    crashes, deliveries, lane_capacity, leased_by, visible_at, run_after, enqueued_at,
    expires_at, leased_at, cancel_requested_at
));
