-- A lane that no job could have is refused where a subscription says it, and not where
-- somebody publishes.
--
-- lane_by is NULL where jobs wait for nobody, empty where all of the task do, or names
-- what makes the key: 'key', 'name', and 'payload.' with a field, and fields of that.
-- The bounds are those of job_place.sql.
--
-- Locks: ACCESS EXCLUSIVE on the table, for a moment.
ALTER TABLE pgqueue_subscription ADD CONSTRAINT pgqueue_subscription_lane CHECK (
    (lane_by IS NULL OR cardinality(lane_by) = 0
     OR array_to_string(lane_by, E'\n', '')
        ~ '^(key|name|payload([.][^.\n]+)+)(\n(key|name|payload([.][^.\n]+)+))*$')
    AND lane_capacity >= 1
    AND lane_spacing BETWEEN 0.000001 AND 2678400
    AND lane_burst BETWEEN 1 AND 100000
    AND lane_policy IN ('skip', 'dead-letter', 'fair')
) NOT VALID;
