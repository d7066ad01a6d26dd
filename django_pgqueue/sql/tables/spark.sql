-- Journals of the Spark pipeline. Spark reads and writes them by SQL, so they have no
-- models.

-- One row for each write from Spark, created by the first of its tasks. While it is open,
-- everything that the write has stored can still be discarded. Its name, if the caller
-- gave one, is taken until the write is rolled back.
CREATE TABLE pgqueue_spark_write (
    id uuid PRIMARY KEY,
    name varchar(100),
    state varchar(11) NOT NULL DEFAULT 'open'
        CONSTRAINT pgqueue_spark_write_state
        CHECK (state IN ('open', 'committed', 'rolled_back')),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    touched_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    stage_schema varchar(63),
    stage_table varchar(63),
    queues jsonb NOT NULL DEFAULT '[]',
    written bigint,
    skipped bigint,
    refused bigint,
    reasons jsonb NOT NULL DEFAULT '{}',
    refused_path text,
    refused_files jsonb NOT NULL DEFAULT '[]'
);
CREATE UNIQUE INDEX pgqueue_spark_write_name ON pgqueue_spark_write (name)
    WHERE state <> 'rolled_back';
CREATE INDEX pgqueue_spark_write_started ON pgqueue_spark_write (started_at);

-- The id up to which ingest has written each topic to each target.
CREATE TABLE pgqueue_ingest_position (
    topic_id integer NOT NULL,
    target varchar(900) NOT NULL,
    read_to bigint NOT NULL,
    run_id bigint NOT NULL,
    read_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topic_id, target)
);
