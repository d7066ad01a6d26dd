-- A frozen copy: what each is for stands in django_pgqueue/sql/, by these names.

-- job_place.sql
CREATE OR REPLACE FUNCTION pgqueue_job_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.lane := nullif(NEW.lane, '');
    IF NEW.lane IS NOT NULL THEN
        NEW.visible_at := NULL;
        NEW.lane_due_at := greatest(NEW.run_after, clock_timestamp());
    ELSE
        NEW.visible_at := greatest(NEW.run_after, clock_timestamp());
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER pgqueue_job_place BEFORE INSERT ON pgqueue_job
    FOR EACH ROW WHEN (NEW.lane IS NOT NULL OR NEW.run_after IS NOT NULL)
    EXECUTE FUNCTION pgqueue_job_place();

-- promote.sql
CREATE OR REPLACE FUNCTION pgqueue_promote(
    in_lanes text[],
    OUT jobs integer,
    OUT queues text[],
    OUT locked text[]
) LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_incremental_sort = off SET jit = off
AS $$
DECLARE
    home bigint := 'pgqueue_job'::regclass::oid;
    moment timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'pgqueue_promote() needs READ COMMITTED, and this transaction is %: it '
            'would count what it saw before it got the lock',
            current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction';
    END IF;
    PERFORM pg_advisory_xact_lock(706706, hashed.key)
       FROM (SELECT DISTINCT (hashtextextended(name, home) % 2147483647)::integer AS key
               FROM unnest(in_lanes) name ORDER BY key) hashed;
    moment := clock_timestamp();
    WITH lane AS MATERIALIZED (
        SELECT asked.name, newest.is_group,
               newest.capacity - (SELECT count(*) FROM (
                   SELECT FROM pgqueue_job j
                    WHERE j.lane = asked.name AND j.visible_at IS NOT NULL
                    LIMIT newest.capacity) held) AS room
          FROM (SELECT DISTINCT name FROM unnest(in_lanes) name) asked
         CROSS JOIN LATERAL (
               SELECT j.lane_capacity IS NULL AS is_group,
                      coalesce(j.lane_capacity, 1) AS capacity
                 FROM pgqueue_job j
                WHERE j.lane >= asked.name AND j.lane <= asked.name
                  AND j.visible_at IS NULL
                ORDER BY j.lane DESC, j.id DESC LIMIT 1) newest),
    first AS MATERIALIZED (
        SELECT lane.name, head.id
          FROM lane CROSS JOIN LATERAL (
               SELECT j.id, j.lane_due_at FROM pgqueue_job j
                WHERE j.lane >= lane.name AND j.lane <= lane.name
                  AND j.visible_at IS NULL
                  AND (j.deliveries = 0 OR j.lane_due_at <= moment)
                ORDER BY j.lane, j.id LIMIT 1) head
         WHERE lane.is_group AND lane.room > 0 AND head.lane_due_at <= moment
        UNION ALL
        SELECT lane.name, due.id
          FROM lane CROSS JOIN LATERAL (
               SELECT j.id FROM pgqueue_job j
                WHERE j.lane >= lane.name
                  AND (j.lane, j.lane_due_at) <= (lane.name, moment)
                  AND j.visible_at IS NULL AND j.lane_capacity IS NOT NULL
                ORDER BY j.lane, j.lane_due_at LIMIT greatest(lane.room, 0)) due
         WHERE NOT lane.is_group),
    free AS MATERIALIZED (
        SELECT j.id FROM pgqueue_job j
         WHERE j.id = ANY(ARRAY(SELECT id FROM first))
           AND num_nonnulls(j.lane_due_at) = 1
           FOR UPDATE SKIP LOCKED),
    promoted AS (
        UPDATE pgqueue_job AS j SET visible_at = moment, lane_due_at = NULL
         WHERE j.id = ANY(ARRAY(SELECT id FROM free))
           AND num_nonnulls(j.lane_due_at) = 1
        RETURNING j.id, j.queue)
    SELECT (SELECT count(*) FROM promoted),
           ARRAY(SELECT DISTINCT queue FROM promoted),
           ARRAY(SELECT DISTINCT name FROM first
                  WHERE NOT EXISTS (SELECT FROM promoted WHERE promoted.id = first.id))
      INTO jobs, queues, locked;
END $$;

-- pins.sql
DO $do$
DECLARE
    home regnamespace := (SELECT c.relnamespace FROM pg_catalog.pg_class c
                           WHERE c.oid = 'pgqueue_job'::regclass);
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT p.oid FROM pg_catalog.pg_proc p
         WHERE p.pronamespace = home AND p.proname IN (
               'pgqueue_begin_publish', 'pgqueue_channel', 'pgqueue_close_log_day',
               'pgqueue_dedup_key', 'pgqueue_enqueue', 'pgqueue_horizons',
               'pgqueue_installation', 'pgqueue_job_place', 'pgqueue_make_archive_day',
               'pgqueue_make_log_day', 'pgqueue_pattern_selects', 'pgqueue_patterns_of',
               'pgqueue_promote', 'pgqueue_publish', 'pgqueue_repeat_calls',
               'pgqueue_retake_keys', 'pgqueue_store', 'pgqueue_store_message',
               'pgqueue_store_messages', 'pgqueue_store_unique')
    LOOP
        EXECUTE pg_catalog.format(
            'ALTER ROUTINE %s SET search_path = %s, pg_temp', routine, home);
    END LOOP;
END $do$;
