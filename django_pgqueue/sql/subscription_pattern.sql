-- A row that no publish would find has a wrong pattern or topic: it is refused where it
-- is written.
--
-- NOT VALID: where rows break it when it is made, it keeps them. They get nothing, the
-- doctor names them, and they can be disabled and deleted.
--
-- Locks: ACCESS EXCLUSIVE on the table, for a moment.
ALTER TABLE pgqueue_subscription ADD CONSTRAINT pgqueue_subscription_pattern CHECK (
    disabled_at IS NOT NULL
    OR (pattern ~ '^([*]|[A-Za-z0-9_-]+)([.]([*]|[A-Za-z0-9_-]+))*$'
        AND topic IS NOT DISTINCT FROM nullif(split_part(pattern, '.', 1), '*'))
) NOT VALID;
