-- Tables, indexes and storage parameters of the core that Django cannot declare.

-- Vacuum by count, not by share: the table is as small as the backlog, and every job
-- leaves two or three dead rows. vacuum_truncate is off because truncating the file needs
-- an ACCESS EXCLUSIVE lock, which would stall claims on an emptied queue. fillfactor
-- stays at 100: claims change an indexed column, so no update is HOT.
ALTER TABLE pgqueue_job SET (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);

-- A step changes when it starts and when it ends, in no indexed column. With room on its
-- page, these updates are HOT.
ALTER TABLE pgqueue_step SET (fillfactor = 50);
ALTER TABLE pgqueue_workflow SET (fillfactor = 50);

-- Tags, in a job's headers. The indexes are partial: a row without tags writes nothing to
-- them, and the planner derives IS NOT NULL from any strict operator, so queries do not
-- repeat it. The pending list is small, because each query scans all of it.
CREATE INDEX pgqueue_job_tags ON pgqueue_job USING gin ((headers -> 'tags'))
    WITH (gin_pending_list_limit = 256) WHERE (headers -> 'tags') IS NOT NULL;
CREATE INDEX pgqueue_archived_job_tags ON pgqueue_archived_job USING gin ((headers -> 'tags'))
    WITH (gin_pending_list_limit = 256) WHERE (headers -> 'tags') IS NOT NULL;
CREATE INDEX pgqueue_dead_letter_tags ON pgqueue_dead_letter USING gin ((headers -> 'tags'))
    WITH (gin_pending_list_limit = 256) WHERE (headers -> 'tags') IS NOT NULL;

CREATE SEQUENCE pgqueue_promotion;

-- Deliveries of pull queues that the leader has not counted yet. UNLOGGED: it writes no
-- WAL, and a crash of the server loses the counts, as a crash of a worker loses its own.
CREATE UNLOGGED TABLE pgqueue_pull_end (
    outcome varchar(10) NOT NULL,
    ended_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    queues varchar(63)[] NOT NULL,
    waits real[] NOT NULL,
    runs real[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX pgqueue_pull_end_at ON pgqueue_pull_end (ended_at);
