-- What no log could take is refused where it is scheduled, and not where the leader
-- publishes it. Times are those that a job may have.
--
-- Locks: ACCESS EXCLUSIVE on the table, which is empty when it is made.
ALTER TABLE pgqueue_scheduled_message ADD CONSTRAINT pgqueue_scheduled_is_sound CHECK (
    id < 0
    AND name ~ '^[A-Za-z0-9_-]{1,63}([.][A-Za-z0-9_-]+)*$'
    AND topic = split_part(name, '.', 1)
    AND jsonb_typeof(headers) = 'object'
    AND run_after BETWEEN '1900-01-01 00:00Z' AND '9999-01-01 00:00Z'
    AND due_at BETWEEN '1900-01-01 00:00Z' AND '9999-01-01 00:00Z'
);
