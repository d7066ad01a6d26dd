-- The log is partitioned by the day of published_at, which Django cannot declare. The
-- leader creates partitions a week ahead, and a publish creates one that is missing.
-- There is no DEFAULT partition, as in the archive. There are no foreign keys: they would
-- cost every message and every DROP.
--
-- One sequence serves all topics. It is created apart from the column, because identity
-- columns of partitioned tables need PostgreSQL 17. CACHE 1, so that ids rise in the
-- order in which sessions draw them.
CREATE SEQUENCE pgqueue_message_id_seq AS bigint CACHE 1;
CREATE TABLE pgqueue_message (
    id bigint NOT NULL DEFAULT nextval('pgqueue_message_id_seq'),
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    epoch bigint NOT NULL DEFAULT 0,
    topic_id integer NOT NULL,
    partition smallint NOT NULL,
    name varchar(255) NOT NULL,
    key varchar(1000),
    payload jsonb NOT NULL,
    headers jsonb NOT NULL DEFAULT '{}'
        CONSTRAINT pgqueue_message_headers CHECK (jsonb_typeof(headers) = 'object'),
    PRIMARY KEY (id, published_at)
) PARTITION BY RANGE (published_at);
CREATE INDEX pgqueue_message_log ON pgqueue_message (topic_id, partition, id);
ALTER SEQUENCE pgqueue_message_id_seq OWNED BY pgqueue_message.id;
