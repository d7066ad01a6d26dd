-- The archive is partitioned by the day of finished_at, which Django cannot declare. The
-- migration creates the partitions of the coming week. After that the leader stays a week
-- ahead, and an ack creates a partition that is missing.
--
-- There is no DEFAULT partition, because it would rule out DETACH CONCURRENTLY, and
-- attaching a partition beside it scans it under a lock that blocks acks.
CREATE TABLE pgqueue_archived_job (
    id bigint NOT NULL,
    queue varchar(63) NOT NULL DEFAULT 'default',
    task varchar(255) NOT NULL,
    args jsonb NOT NULL DEFAULT '[]',
    kwargs jsonb NOT NULL DEFAULT '{}',
    headers jsonb NOT NULL DEFAULT '{}',
    priority smallint NOT NULL DEFAULT 0,
    run_after timestamptz,
    enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    attempt smallint NOT NULL DEFAULT 0,
    max_attempts smallint NOT NULL DEFAULT 5,
    crashes smallint NOT NULL DEFAULT 0,
    deliveries integer NOT NULL DEFAULT 0,
    dedup_key varchar(255),
    lane varchar(255),
    lane_capacity integer,
    lane_spacing double precision,
    lane_burst integer,
    lane_policy varchar(20),
    errors jsonb NOT NULL DEFAULT '[]',
    progress jsonb,
    workflow_id bigint,
    parent_id bigint,
    message_id bigint,
    schedule_id bigint,
    state varchar(9) NOT NULL
        CONSTRAINT pgqueue_archived_job_state
        CHECK (state IN ('succeeded', 'cancelled', 'expired')),
    result jsonb,
    started_at timestamptz,
    finished_at timestamptz NOT NULL,
    worker varchar(100),
    accumulate_key varchar(255),
    PRIMARY KEY (id, finished_at)
) PARTITION BY RANGE (finished_at);
CREATE INDEX pgqueue_archived_job_result ON pgqueue_archived_job (finished_at)
    WHERE result IS NOT NULL;
